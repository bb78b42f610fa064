//! What a type looks like, in words that can be stored and compared.

use std::collections::BTreeMap;

/// Field names, as they stand in JSON, and how the type of each is spelled in the source. The spelling is all that is
/// compared: `String` and `std::string::String` differ, and changes inside a type that a field names are not seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    pub type_name: &'static str,
    pub fields: BTreeMap<String, String>,
}

impl Schema {
    pub fn new(type_name: &'static str, fields: &[(&str, &str)]) -> Schema {
        let fields = fields.iter().map(|&(name, spelled)| (name.to_owned(), spelled.to_owned())).collect();
        Schema { type_name, fields }
    }
}
