//! The stored fields of a struct, under the names that serde gives them in JSON.

use proc_macro2::{Ident, Span};
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Field, Fields, LitStr, Result, Type};

use crate::spelling::spell;

/// A field that is stored, which is every field without `#[serde(skip)]`.
pub(crate) struct Stored<'a> {
    pub(crate) source: &'a Field,
    pub(crate) ident: &'a Ident,
    pub(crate) ty: &'a Type,
    /// The field's name in JSON.
    pub(crate) name: String,
    pub(crate) spelled: String,
    /// JSON without this field can be read (`#[serde(default)]` on the field or on the struct).
    pub(crate) defaulted: bool,
    /// A function of the user reads the field (`#[serde(with)]` or `#[serde(deserialize_with)]`).
    pub(crate) custom: bool,
}

/// Returns the stored fields. Accepts only structs with named fields, because the payload is a JSON object.
pub(crate) fn stored_fields<'a>(input: &'a DeriveInput, what: &str) -> Result<Vec<Stored<'a>>> {
    if !input.generics.params.is_empty() {
        let message = format!("{what} cannot be generic: its name in the store stands for one type");
        return Err(Error::new(input.generics.span(), message));
    }
    let wrong = |span: Span| {
        Error::new(span, format!("{what} is a struct with named fields (`struct Tick {{}}` if it has none)"))
    };
    let Data::Struct(data) = &input.data else { return Err(wrong(input.ident.span())) };
    let fields = match &data.fields {
        Fields::Named(fields) => &fields.named,
        // Serde writes a unit struct as `null`, and a tuple struct as an array.
        Fields::Unit | Fields::Unnamed(_) => return Err(wrong(input.ident.span())),
    };
    let rule = container_rule(&input.attrs)?;
    let all_defaulted = container_defaults(&input.attrs)?;
    let mut stored = Vec::new();
    for field in fields {
        let Some(ident) = &field.ident else { continue };
        let serde = FieldRules::read(&field.attrs)?;
        if serde.skipped {
            continue;
        }
        let plain = ident.to_string();
        let plain = plain.strip_prefix("r#").unwrap_or(&plain);
        let name = serde.renamed.unwrap_or_else(|| rule.apply(plain));
        stored.push(Stored {
            source: field,
            ident,
            ty: &field.ty,
            name,
            spelled: spell(&field.ty),
            defaulted: serde.defaulted || all_defaulted,
            custom: serde.custom,
        });
    }
    Ok(stored)
}

#[derive(Default)]
struct FieldRules {
    renamed: Option<String>,
    skipped: bool,
    defaulted: bool,
    custom: bool,
}

impl FieldRules {
    fn read(attrs: &[Attribute]) -> Result<FieldRules> {
        let mut rules = FieldRules::default();
        for attr in attrs.iter().filter(|attr| attr.path().is_ident("serde")) {
            attr.parse_nested_meta(|meta| {
                if meta.path.is_ident("flatten") {
                    return Err(
                        meta.error("flattened fields have no names that a schema could list: nest them")
                    );
                }
                if meta.path.is_ident("rename") {
                    rules.renamed = Some(both_ways(&meta)?);
                    return Ok(());
                }
                rules.skipped |= meta.path.is_ident("skip");
                rules.defaulted |= meta.path.is_ident("default");
                rules.custom |= meta.path.is_ident("with") || meta.path.is_ident("deserialize_with");
                skip_value(&meta)
            })?;
        }
        Ok(rules)
    }
}

/// Reads `rename = ".."`. Different names for writing and for reading are refused: the stored rows would be unreadable.
fn both_ways(meta: &ParseNestedMeta<'_>) -> Result<String> {
    if meta.input.peek(syn::token::Paren) {
        return Err(meta.error("one name for both ways: rename = \"..\""));
    }
    Ok(meta.value()?.parse::<LitStr>()?.value())
}

/// Skips the value of a serde attribute that does not concern these macros.
fn skip_value(meta: &ParseNestedMeta<'_>) -> Result<()> {
    if meta.input.peek(syn::Token![=]) {
        meta.value()?.parse::<syn::Expr>()?;
    } else if meta.input.peek(syn::token::Paren) {
        meta.parse_nested_meta(|inner| skip_value(&inner))?;
    }
    Ok(())
}

/// Returns whether the struct itself has `#[serde(default)]`.
fn container_defaults(attrs: &[Attribute]) -> Result<bool> {
    let mut found = false;
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("serde")) {
        attr.parse_nested_meta(|meta| {
            found |= meta.path.is_ident("default");
            skip_value(&meta)
        })?;
    }
    Ok(found)
}

#[derive(Clone, Copy)]
enum Rule {
    Keep,
    Lower,
    Upper,
    Pascal,
    Camel,
    ScreamingSnake,
    Kebab,
    ScreamingKebab,
}

fn container_rule(attrs: &[Attribute]) -> Result<Rule> {
    let mut rule = Rule::Keep;
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("serde")) {
        attr.parse_nested_meta(|meta| {
            for name in ["transparent", "tag", "into", "from", "try_from", "remote"] {
                if meta.path.is_ident(name) {
                    return Err(meta.error(format!("`{name}` changes what is stored: plain fields only")));
                }
            }
            if !meta.path.is_ident("rename_all") {
                return skip_value(&meta);
            }
            let spelled = both_ways(&meta)?;
            rule = Rule::named(&spelled)
                .ok_or_else(|| meta.error(format!("serde knows no case `{spelled}`")))?;
            Ok(())
        })?;
    }
    Ok(rule)
}

impl Rule {
    fn named(name: &str) -> Option<Rule> {
        Some(match name {
            "snake_case" => Rule::Keep,
            "lowercase" => Rule::Lower,
            "UPPERCASE" => Rule::Upper,
            "PascalCase" => Rule::Pascal,
            "camelCase" => Rule::Camel,
            "SCREAMING_SNAKE_CASE" => Rule::ScreamingSnake,
            "kebab-case" => Rule::Kebab,
            "SCREAMING-KEBAB-CASE" => Rule::ScreamingKebab,
            _ => return None,
        })
    }

    /// Renames a field as serde does; field names are in snake case.
    fn apply(self, field: &str) -> String {
        match self {
            Rule::Keep | Rule::Lower => field.to_owned(),
            Rule::Upper | Rule::ScreamingSnake => field.to_ascii_uppercase(),
            Rule::Pascal => pascal(field),
            Rule::Camel => {
                let pascal = pascal(field);
                let mut chars = pascal.chars();
                chars
                    .next()
                    .map_or_else(String::new, |first| first.to_ascii_lowercase().to_string() + chars.as_str())
            }
            Rule::Kebab => field.replace('_', "-"),
            Rule::ScreamingKebab => field.to_ascii_uppercase().replace('_', "-"),
        }
    }
}

fn pascal(field: &str) -> String {
    let mut out = String::new();
    let mut capital = true;
    for c in field.chars() {
        if c == '_' {
            capital = true;
        } else if capital {
            out.push(c.to_ascii_uppercase());
            capital = false;
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(source: &str) -> Vec<String> {
        let input: DeriveInput = syn::parse_str(source).unwrap();
        stored_fields(&input, "an entity").unwrap().into_iter().map(|field| field.name).collect()
    }

    #[test]
    fn fields_are_named_as_serde_names_them() {
        for (case, name) in [
            ("lowercase", "order_id"),
            ("UPPERCASE", "ORDER_ID"),
            ("PascalCase", "OrderId"),
            ("camelCase", "orderId"),
            ("snake_case", "order_id"),
            ("SCREAMING_SNAKE_CASE", "ORDER_ID"),
            ("kebab-case", "order-id"),
            ("SCREAMING-KEBAB-CASE", "ORDER-ID"),
        ] {
            assert_eq!(
                names(&format!("#[serde(rename_all = \"{case}\")] struct S {{ order_id: u8 }}")),
                [name]
            );
        }
        let source = "#[serde(deny_unknown_fields)] struct S { #[serde(rename = \"x\", default)] a: u8, \
                      #[serde(skip)] b: u8, #[serde(default = \"f\")] r#type: u8 }";
        assert_eq!(names(source), ["x", "type"]);
    }

    #[test]
    fn what_has_no_plain_fields_is_refused() {
        for (source, reason) in [
            ("struct S { #[serde(flatten)] a: T }", "nest them"),
            ("#[serde(transparent)] struct S { a: T }", "plain fields only"),
            ("struct S<T> { a: T }", "cannot be generic"),
            ("struct S(u8);", "named fields"),
            ("struct S;", "named fields"),
            ("enum S { A }", "named fields"),
        ] {
            let input: DeriveInput = syn::parse_str(source).unwrap();
            let error = stored_fields(&input, "an entity").err().map(|error| error.to_string());
            assert!(error.as_deref().is_some_and(|error| error.contains(reason)), "{source}: {error:?}");
        }
    }
}
