//! The effect table of a module: the custom section `__voyd_effect_table`, versions 2 and 3.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_runs::{Operation, ResumeKind};

/// The custom section in which compilers put the table.
pub const EFFECT_TABLE_SECTION: &str = "__voyd_effect_table";

/// How many times the section's size its names may take together. Names that do not overlap take at most the section's
/// own size; a table that lets many names point into one string may need more. Beyond this factor it is refused.
const NAME_BYTES_FACTOR: usize = 4;

const HEADER_BYTES: usize = 8;

/// Why a section is no effect table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    #[error("Missing effect table export {EFFECT_TABLE_SECTION}")]
    Missing,
    #[error("Unsupported effect table version {0}")]
    Version(u32),
    #[error("Effect table payload is truncated")]
    Truncated,
    #[error("Name offset {0} is out of bounds")]
    NameOffset(u32),
    #[error("Name at offset {0} is not UTF-8")]
    NameUtf8(u32),
    #[error("unsupported resume kind {0}")]
    ResumeKind(u32),
    #[error(
        "Effect table names overlap too much: together they are more than {NAME_BYTES_FACTOR} times the section"
    )]
    NamesTooLong,
}

/// An operation of an effect, as the module's table describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectOp {
    /// Position in the table: how requests name the operation.
    pub index: u32,
    pub effect_id: Arc<str>,
    /// FNV-1a 64 of the effect id, as the table states it.
    pub effect_hash: u64,
    /// Declaration index inside the effect. Instantiations of a generic operation share it.
    pub op_id: u32,
    pub kind: ResumeKind,
    /// An opaque number that distinguishes instantiations of a generic operation.
    pub signature: u32,
    /// The name in error texts: `src::module::Effect.op`.
    pub label: Arc<str>,
    /// Only in tables of version 3.
    pub operation_id: Option<Arc<str>>,
}

impl EffectOp {
    /// Returns the operation's own name, such as `number` of `src::module::Ask.number`.
    pub fn name(&self) -> &str {
        let after_dot = self.label.rsplit_once('.').map_or(&*self.label, |(_, name)| name);
        after_dot.rsplit_once("::").map_or(after_dot, |(_, name)| name)
    }

    /// Returns the label with `::` before the operation: `src::module::Ask::number`.
    pub fn path(&self) -> String {
        match self.label.rsplit_once('.') {
            Some((effect, name)) => format!("{effect}::{name}"),
            None => self.label.to_string(),
        }
    }

    pub(crate) fn to_operation(&self) -> Operation {
        Operation { label: self.label.clone(), kind: self.kind }
    }
}

/// Reads the section's contents.
pub(crate) fn parse(payload: &[u8]) -> Result<Vec<EffectOp>, TableError> {
    let version = word(payload, 0)?;
    let entry_bytes = match version {
        2 => 28,
        3 => 32,
        other => return Err(TableError::Version(other)),
    };
    let count = usize::try_from(word(payload, 4)?).map_err(|_| TableError::Truncated)?;
    let names_at = count.checked_mul(entry_bytes).and_then(|bytes| bytes.checked_add(HEADER_BYTES));
    let names_at = names_at.filter(|at| *at <= payload.len()).ok_or(TableError::Truncated)?;
    let names_left = payload.len().saturating_mul(NAME_BYTES_FACTOR);
    let mut names = Names { blob: &payload[names_at..], read: BTreeMap::new(), bytes_left: names_left };
    let entries = payload[HEADER_BYTES..names_at].chunks_exact(entry_bytes);
    (0..).zip(entries).map(|(index, entry)| effect_op(index, entry, &mut names)).collect()
}

fn effect_op(index: u32, entry: &[u8], names: &mut Names<'_>) -> Result<EffectOp, TableError> {
    let kind = word(entry, 16)?;
    let operation_id = match entry.len() {
        32 => Some(names.get(word(entry, 28)?)?).filter(|id| !id.is_empty()),
        _ => None,
    };
    Ok(EffectOp {
        index,
        effect_hash: u64::from(word(entry, 4)?) << 32 | u64::from(word(entry, 0)?),
        effect_id: names.get(word(entry, 8)?)?,
        op_id: word(entry, 12)?,
        kind: resume_kind(kind.into()).ok_or(TableError::ResumeKind(kind))?,
        signature: word(entry, 20)?,
        label: names.get(word(entry, 24)?)?,
        operation_id,
    })
}

/// The resume kind behind a number on the wire.
pub(crate) fn resume_kind(number: i64) -> Option<ResumeKind> {
    match number {
        0 => Some(ResumeKind::Resume),
        1 => Some(ResumeKind::Tail),
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> Result<u32, TableError> {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk()).ok_or(TableError::Truncated)?;
    Ok(u32::from_le_bytes(*word))
}

/// The names of a table. Each offset is read once, because entries share their strings.
struct Names<'a> {
    blob: &'a [u8],
    read: BTreeMap<u32, Arc<str>>,
    bytes_left: usize,
}

impl Names<'_> {
    fn get(&mut self, offset: u32) -> Result<Arc<str>, TableError> {
        if let Some(name) = self.read.get(&offset) {
            return Ok(name.clone());
        }
        let start = usize::try_from(offset).ok().filter(|start| *start < self.blob.len());
        let tail = &self.blob[start.ok_or(TableError::NameOffset(offset))?..];
        let end = tail.iter().position(|byte| *byte == 0).unwrap_or(tail.len());
        self.bytes_left = self.bytes_left.checked_sub(end).ok_or(TableError::NamesTooLong)?;
        let name: Arc<str> =
            std::str::from_utf8(&tail[..end]).map_err(|_| TableError::NameUtf8(offset))?.into();
        self.read.insert(offset, name.clone());
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a section from the words of its entries and the names blob.
    fn table(version: u32, entries: &[&[u32]], names: &[u8]) -> Vec<u8> {
        let words = [version, u32::try_from(entries.len()).unwrap()];
        let words = words.iter().chain(entries.iter().copied().flatten());
        words.flat_map(|word| word.to_le_bytes()).chain(names.iter().copied()).collect()
    }

    const NAMES: &[u8] = b"case.ask\0src::a::Ask.number\0\0op-7\0";

    #[test]
    fn version_2_is_read() {
        let ops = parse(&table(2, &[&[0xa3a0_827a, 0xbd3d_f8fa, 0, 4, 1, 0x8727_02af, 9]], NAMES)).unwrap();
        let op = &ops[0];
        assert_eq!(
            (op.index, op.effect_hash, op.op_id, op.kind),
            (0, 0xbd3d_f8fa_a3a0_827a, 4, ResumeKind::Tail)
        );
        assert_eq!(
            (&*op.effect_id, &*op.label, op.signature),
            ("case.ask", "src::a::Ask.number", 0x8727_02af)
        );
        assert_eq!((op.name(), op.path().as_str()), ("number", "src::a::Ask::number"));
        assert_eq!(op.operation_id, None);
    }

    #[test]
    fn version_3_adds_operation_ids_and_an_empty_one_is_none() {
        let entries: [&[u32]; 2] = [&[0, 0, 0, 0, 0, 1, 9, 28], &[0, 0, 0, 0, 0, 2, 9, 29]];
        let ops = parse(&table(3, &entries, NAMES)).unwrap();
        assert_eq!(ops[0].operation_id, None);
        assert_eq!(ops[1].operation_id.as_deref(), Some("op-7"));
        assert!(Arc::ptr_eq(&ops[0].label, &ops[1].label));
    }

    #[test]
    fn what_is_no_table_is_refused_with_the_text_of_the_fact_sheet() {
        let entry: &[u32] = &[0, 0, 0, 0, 0, 1, 9];
        let text = |payload: &[u8]| parse(payload).unwrap_err().to_string();
        assert_eq!(text(&table(4, &[], b"")), "Unsupported effect table version 4");
        assert_eq!(text(&table(2, &[entry], b"")[..20]), "Effect table payload is truncated");
        assert_eq!(text(&[2, 0, 0]), "Effect table payload is truncated");
        assert_eq!(text(&[2, 0, 0, 0, 255, 255, 255, 255]), "Effect table payload is truncated");
        assert_eq!(text(&table(2, &[entry], b"case\0")), "Name offset 9 is out of bounds");
        assert_eq!(text(&table(2, &[&[0, 0, 0, 0, 2, 0, 0]], NAMES)), "unsupported resume kind 2");
        assert_eq!(text(&table(2, &[&[0, 0, 0, 0, 0, 0, 0]], b"\xff\0")), "Name at offset 0 is not UTF-8");
    }

    #[test]
    fn names_that_all_point_into_one_string_do_not_multiply_it() {
        let names = vec![b'x'; 4000];
        let entries: Vec<Vec<u32>> = (0..100).map(|at| vec![0, 0, 2 * at, 0, 0, 0, 2 * at + 1]).collect();
        let entries: Vec<&[u32]> = entries.iter().map(Vec::as_slice).collect();
        assert_eq!(parse(&table(2, &entries, &names)), Err(TableError::NamesTooLong));
    }
}
