//! Custom sections of a wasm binary. `wasmtime` does not expose them, so this file parses the bytes; nothing is copied.

/// Why the bytes are no wasm module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SectionError {
    #[error("not a wasm module: the bytes do not begin with \\0asm and version 1")]
    NotWasm,
    #[error("not a wasm module: the section at byte {at} is longer than the bytes that are left")]
    Truncated { at: usize },
}

const HEADER: &[u8] = b"\0asm\x01\0\0\0";
const CUSTOM: u8 = 0;

/// Returns the contents of the first custom section with this name.
pub(crate) fn custom_section<'a>(module: &'a [u8], name: &str) -> Result<Option<&'a [u8]>, SectionError> {
    let mut rest = module.strip_prefix(HEADER).ok_or(SectionError::NotWasm)?;
    while let Some((&id, after_id)) = rest.split_first() {
        let truncated = SectionError::Truncated { at: module.len() - rest.len() };
        let (content, after) = sized(after_id).ok_or(truncated)?;
        if id == CUSTOM {
            let (found, payload) = sized(content).ok_or(truncated)?;
            if found == name.as_bytes() {
                return Ok(Some(payload));
            }
        }
        rest = after;
    }
    Ok(None)
}

/// Splits off a LEB128 length and as many bytes.
fn sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut len = 0_u64;
    for (position, byte) in bytes.iter().take(5).enumerate() {
        len |= u64::from(byte & 0x7f) << (7 * position);
        if byte & 0x80 == 0 {
            return bytes[position + 1..].split_at_checked(usize::try_from(len).ok()?);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_sections(sections: &[(u8, &[u8])]) -> Vec<u8> {
        let mut module = HEADER.to_vec();
        for (id, content) in sections {
            module.extend([*id, u8::try_from(content.len()).unwrap()]);
            module.extend(*content);
        }
        module
    }

    #[test]
    fn the_first_section_of_that_name_is_found() {
        let module = with_sections(&[(0, b"\x01ax"), (1, b"\0"), (0, b"\x01by"), (0, b"\x01bz")]);
        assert_eq!(custom_section(&module, "b"), Ok(Some(&b"y"[..])));
        assert_eq!(custom_section(&module, "c"), Ok(None));
    }

    #[test]
    fn bytes_that_are_no_module_are_refused() {
        assert_eq!(custom_section(b"", "a"), Err(SectionError::NotWasm));
        assert_eq!(custom_section(b"\0asm\x0d\0\x01\0", "a"), Err(SectionError::NotWasm));
        let mut cut = with_sections(&[(0, b"\x01ax")]);
        cut.pop();
        assert_eq!(custom_section(&cut, "z"), Err(SectionError::Truncated { at: 8 }));
        let endless_length = [HEADER, &[0, 0xff, 0xff, 0xff, 0xff, 0xff]].concat();
        assert_eq!(custom_section(&endless_length, "z"), Err(SectionError::Truncated { at: 8 }));
        let name_beyond_section = with_sections(&[(0, b"\x05ax")]);
        assert_eq!(custom_section(&name_beyond_section, "z"), Err(SectionError::Truncated { at: 8 }));
    }
}
