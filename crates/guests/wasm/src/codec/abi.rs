//! The JSON sections in which a module of generation B describes its types. They also distinguish the generations.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::schema::{RecordField, Signature, TypeNames, ValueSchema, Variant};

pub(crate) const EXPORT_ABI_SECTION: &str = "voyd.export_abi";
pub(crate) const EFFECT_ABI_SECTION: &str = "voyd.effect_abi";

const HOST_ABI: i64 = 2;
const TRANSPORT: &str = "voyd.std.msgpack";

/// Why a module's description of its types is not usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AbiError {
    #[error("section {section} is not JSON: {message}")]
    Json { section: &'static str, message: String },
    #[error(
        "section {EXPORT_ABI_SECTION} has hostAbi {found}; supported are 2 (generation B) and none (generation A)"
    )]
    HostAbi { found: String },
    #[error("section {EXPORT_ABI_SECTION} names the transport {found}; supported is {TRANSPORT}")]
    Transport { found: String },
    #[error("section {section}: {at} {problem}")]
    Shape { section: &'static str, at: String, problem: &'static str },
}

/// An export of generation B.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExportTypes {
    pub(crate) id: u32,
    pub(crate) signature: Signature,
    /// A fingerprint per parameter, copied into frames as the module wrote it.
    pub(crate) fingerprints: Vec<String>,
}

/// Reads the section that distinguishes the generations: `None` means generation A.
pub(crate) fn exports(section: &[u8]) -> Result<Option<BTreeMap<String, ExportTypes>>, AbiError> {
    let json = parse(EXPORT_ABI_SECTION, section)?;
    match json.get("hostAbi") {
        None | Some(Json::Null) => return Ok(None),
        Some(found) if found.as_i64() == Some(HOST_ABI) => {}
        Some(found) => return Err(AbiError::HostAbi { found: found.to_string() }),
    }
    if let Some(found) = json.pointer("/transport/id").filter(|id| id.as_str() != Some(TRANSPORT)) {
        return Err(AbiError::Transport { found: found.to_string() });
    }
    let mut exports = BTreeMap::new();
    for entry in items(json.get("exports")) {
        let at = AbiLocation { section: EXPORT_ABI_SECTION, at: "exports" };
        let name = entry.get("name").and_then(Json::as_str).ok_or_else(|| at.error("lacks the text name"))?;
        let id = entry.get("id").and_then(Json::as_u64).and_then(|id| u32::try_from(id).ok());
        let id = id.unwrap_or_else(|| export_id(name));
        let fingerprint =
            |param: &Json| param.get("fingerprint").and_then(Json::as_str).unwrap_or_default().to_owned();
        let fingerprints = items(entry.get("params")).iter().map(fingerprint).collect();
        exports.insert(name.to_owned(), ExportTypes { id, signature: signature(entry, &at)?, fingerprints });
    }
    Ok(Some(exports))
}

/// Reads the types of the operations, by their position in the effect table.
pub(crate) fn operations(section: &[u8]) -> Result<BTreeMap<u32, Signature>, AbiError> {
    let json = parse(EFFECT_ABI_SECTION, section)?;
    let mut operations = BTreeMap::new();
    for entry in items(json.get("ops")) {
        let at = AbiLocation { section: EFFECT_ABI_SECTION, at: "ops" };
        let index = entry.get("opIndex").and_then(Json::as_u64).and_then(|index| u32::try_from(index).ok());
        let index = index.ok_or_else(|| at.error("lacks the whole number opIndex"))?;
        operations.insert(index, signature(entry, &at)?);
    }
    Ok(operations)
}

/// The id of an export whose entry has none: FNV-1a 32 over the UTF-16 units of its name, shifted right by one.
pub(crate) fn export_id(name: &str) -> u32 {
    let hash = |hash: u32, unit: u16| (hash ^ u32::from(unit)).wrapping_mul(0x0100_0193);
    name.encode_utf16().fold(0x811c_9dc5, hash) >> 1
}

struct AbiLocation {
    section: &'static str,
    at: &'static str,
}

impl AbiLocation {
    fn error(&self, problem: &'static str) -> AbiError {
        AbiError::Shape { section: self.section, at: format!("an entry of {}", self.at), problem }
    }
}

fn parse(section: &'static str, bytes: &[u8]) -> Result<Json, AbiError> {
    serde_json::from_slice(bytes).map_err(|error| AbiError::Json { section, message: error.to_string() })
}

fn items(json: Option<&Json>) -> &[Json] {
    json.and_then(Json::as_array).map_or(&[], Vec::as_slice)
}

fn signature(entry: &Json, at: &AbiLocation) -> Result<Signature, AbiError> {
    let mut names = TypeNames::new();
    let params: Result<_, _> =
        items(entry.get("params")).iter().map(|param| schema(param, &mut names, at)).collect();
    let params = params?;
    let result = match entry.get("result") {
        None | Some(Json::Null) => None,
        Some(result) => Some(schema(result, &mut names, at)?),
    };
    Ok(Signature { params, result, names })
}

fn schema(json: &Json, names: &mut TypeNames, at: &AbiLocation) -> Result<Arc<ValueSchema>, AbiError> {
    let json = json.as_object().ok_or_else(|| at.error("has a type that is no object"))?;
    let number = json.get("typeId").and_then(Json::as_i64);
    let schema = match json.get("kind").and_then(Json::as_str) {
        Some("bool") => ValueSchema::Bool,
        Some("i32") => ValueSchema::I32,
        Some("i64") => ValueSchema::I64,
        Some("f32") => ValueSchema::F32,
        Some("f64") => ValueSchema::F64,
        Some("void") => ValueSchema::Void,
        Some("string") => ValueSchema::Str,
        Some("bytes") => ValueSchema::Bytes,
        Some("array") => ValueSchema::Array(inner(json, "element", names, at)?),
        Some("record") => ValueSchema::Record(fields(json, names, at)?),
        Some("union") => ValueSchema::Union(variants(json, names, at)?),
        Some("custom") => return Ok(named(json, inner(json, "representation", names, at)?, names)),
        Some("ref") => ValueSchema::Ref(number.ok_or_else(|| at.error("has a ref without a typeId"))?),
        _ => return Err(at.error("has a type of an unknown kind")),
    };
    let is_definition = !matches!(schema, ValueSchema::Ref(_));
    let schema = Arc::new(schema);
    Ok(if is_definition { named(json, schema, names) } else { schema })
}

/// Registers a type under its number and its aliases, for types that refer to it.
fn named(json: &Map<String, Json>, schema: Arc<ValueSchema>, names: &mut TypeNames) -> Arc<ValueSchema> {
    let numbers = json.get("typeId").into_iter().chain(items(json.get("aliases")));
    for number in numbers.filter_map(Json::as_i64) {
        names.entry(number).or_insert_with(|| schema.clone());
    }
    schema
}

fn inner(
    json: &Map<String, Json>,
    key: &str,
    names: &mut TypeNames,
    at: &AbiLocation,
) -> Result<Arc<ValueSchema>, AbiError> {
    let json = json.get(key).ok_or_else(|| at.error("has an array or custom type without its inner type"))?;
    schema(json, names, at)
}

fn fields(
    json: &Map<String, Json>,
    names: &mut TypeNames,
    at: &AbiLocation,
) -> Result<Vec<RecordField>, AbiError> {
    let field = |field: &Json| {
        let name =
            field.get("name").and_then(Json::as_str).ok_or_else(|| at.error("has a field without a name"))?;
        let json = field.get("schema").ok_or_else(|| at.error("has a field without a type"))?;
        let optional = field.get("optional").and_then(Json::as_bool).unwrap_or(false);
        Ok(RecordField { name: name.to_owned(), schema: schema(json, names, at)?, optional })
    };
    items(json.get("fields")).iter().map(field).collect()
}

fn variants(
    json: &Map<String, Json>,
    names: &mut TypeNames,
    at: &AbiLocation,
) -> Result<Vec<Variant>, AbiError> {
    let variant = |variant: &Json| {
        let object = variant.as_object().ok_or_else(|| at.error("has a variant that is no object"))?;
        let name = object
            .get("name")
            .and_then(Json::as_str)
            .ok_or_else(|| at.error("has a variant without a name"))?;
        Ok(Variant { name: name.to_owned(), fields: fields(object, names, at)? })
    };
    items(json.get("variants")).iter().map(variant).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_id_of_main_is_the_recorded_one() {
        assert_eq!(export_id("main"), 1_967_681_796);
    }

    #[test]
    fn a_section_without_host_abi_is_generation_a() {
        assert_eq!(exports(br#"{"version":1,"exports":[{"name":"f","abi":"direct"}]}"#), Ok(None));
        let unknown = exports(br#"{"version":3,"hostAbi":3}"#).unwrap_err().to_string();
        assert!(unknown.contains("hostAbi 3"), "{unknown}");
        assert!(exports(b"{").unwrap_err().to_string().starts_with("section voyd.export_abi is not JSON"));
    }

    #[test]
    fn exports_of_generation_b_have_types_and_fingerprints() {
        let node = json!({"kind": "record", "typeId": 7, "aliases": [8], "fingerprint": "ab", "fields": [
            {"name": "next", "optional": true, "schema": {"kind": "ref", "typeId": 8}},
            {"name": "tags", "schema": {"kind": "array", "element": {"kind": "custom", "typeId": 9, "representation": {"kind": "string"}}}}
        ]});
        let json = json!({"version": 2, "hostAbi": 2, "transport": {"id": "voyd.std.msgpack", "version": 1},
            "exports": [{"id": 5, "name": "main", "abi": "serialized", "params": [node], "result": {"kind": "i32"}}]});
        let exports = exports(json.to_string().as_bytes()).unwrap().unwrap();
        let main = &exports["main"];
        assert_eq!((main.id, main.fingerprints.as_slice()), (5, &["ab".to_owned()][..]));
        assert_eq!(main.signature.result.as_deref(), Some(&ValueSchema::I32));
        let names: Vec<i64> = main.signature.names.keys().copied().collect();
        assert_eq!(names, [7, 8, 9]);
    }

    #[test]
    fn operations_are_found_by_their_index() {
        let json = json!({"version": 1, "ops": [{"opIndex": 3, "params": [{"kind": "i64"}], "result": {"kind": "void"}}]});
        let ops = operations(json.to_string().as_bytes()).unwrap();
        assert_eq!(ops[&3].params, [Arc::new(ValueSchema::I64)]);
        let broken = json!({"ops": [{"opIndex": 0, "params": [{"kind": "i128"}]}]});
        let error = operations(broken.to_string().as_bytes()).unwrap_err().to_string();
        assert_eq!(error, "section voyd.effect_abi: an entry of ops has a type of an unknown kind");
    }
}
