//! Expands `#[derive(Entity)]`, and holds the parts shared with `#[derive(Relation)]`: the table of fields, names,
//! roles.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::{DeriveInput, Error, LitStr, Result};

use crate::rename::{Stored, stored_fields};

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let ident = &input.ident;
    let type_name = read_name(input)?;
    let fields = stored_fields(input, "an entity")?;
    let key = exactly_one(input, &fields, "key")?;
    let key_ident = key.ident;
    let table = table(input, &fields);
    let table_ident = table_ident(ident);
    let schema = schema(&type_name, &fields, &[(key, "key".to_owned())]);
    let key_fields = key_fields(&[key]);
    Ok(quote! {
        #table

        #[automatically_derived]
        impl ::millrace::Stateful for #ident {
            const KIND: ::millrace::StateKind = ::millrace::StateKind::Entity;
            const TYPE: &'static str = #type_name;
            type Fields = #table_ident;
            const KEY_FIELDS: &'static [&'static str] = #key_fields;

            fn identity(&self) -> ::millrace::Identity {
                ::millrace::Identity::Entity {
                    type_name: ::std::string::String::from(#type_name),
                    key: ::millrace::Entity::key(self),
                }
            }

            fn schema() -> ::millrace::Schema {
                #schema
            }
        }

        #[automatically_derived]
        impl ::millrace::Entity for #ident {
            fn key(&self) -> ::std::string::String {
                ::millrace::Key::into_key(&self.#key_ident)
            }
        }
    })
}

fn read_name(input: &DeriveInput) -> Result<String> {
    let mut name = None;
    for attr in input.attrs.iter().filter(|attr| attr.path().is_ident("entity")) {
        attr.parse_nested_meta(|meta| {
            if !meta.path.is_ident("name") {
                return Err(meta.error("expected `name = \"..\"`"));
            }
            name = Some(given_name(&meta.value()?.parse()?)?);
            Ok(())
        })?;
    }
    Ok(name.unwrap_or_else(|| plain_name(&input.ident)))
}

/// Checks the name given to an entity or relation type. Any text is allowed except the empty one, which would look like
/// a mistake wherever it is shown.
pub(crate) fn given_name(name: &LitStr) -> Result<String> {
    if name.value().is_empty() {
        return Err(Error::new(name.span(), "a type needs a name of at least one character"));
    }
    Ok(name.value())
}

pub(crate) fn plain_name(ident: &Ident) -> String {
    let name = ident.to_string();
    name.strip_prefix("r#").unwrap_or(&name).to_owned()
}

pub(crate) fn exactly_one<'f, 'a>(
    input: &DeriveInput,
    fields: &'f [Stored<'a>],
    role: &str,
) -> Result<&'f Stored<'a>> {
    at_most_one(fields, role)?.ok_or_else(|| {
        let message =
            format!("`{}` has no #[{role}]: put it on the field that holds it", plain_name(&input.ident));
        Error::new(input.ident.span(), message)
    })
}

pub(crate) fn at_most_one<'f, 'a>(fields: &'f [Stored<'a>], role: &str) -> Result<Option<&'f Stored<'a>>> {
    let mut bearers =
        fields.iter().filter(|field| field.source.attrs.iter().any(|attr| attr.path().is_ident(role)));
    let first = bearers.next();
    match bearers.next() {
        None => Ok(first),
        Some(second) => {
            let message = format!("a second #[{role}]: exactly one field may carry it");
            Err(Error::new(second.ident.span(), message))
        }
    }
}

/// Generates a struct with one typed [`Field`] per field, so that filters can name the stored fields and nothing else.
pub(crate) fn table(input: &DeriveInput, fields: &[Stored<'_>]) -> TokenStream {
    let (ident, visibility, table) = (&input.ident, &input.vis, table_ident(&input.ident));
    let doc = format!("The fields of [`{ident}`], for filters and orders.");
    let members = fields.iter().map(|Stored { ident: field, ty, source, .. }| {
        let visibility = &source.vis;
        quote!(#visibility #field: ::millrace::Field<#ident, #ty>)
    });
    let values =
        fields.iter().map(|Stored { ident: field, name, .. }| quote!(#field: ::millrace::Field::new(#name)));
    quote! {
        #[doc = #doc]
        #[allow(dead_code)]
        #[derive(Clone, Copy, Debug)]
        #visibility struct #table {
            #(#members),*
        }

        #[automatically_derived]
        impl ::std::default::Default for #table {
            fn default() -> Self {
                #table { #(#values),* }
            }
        }
    }
}

/// Returns the JSON names of the key fields, up to the first one whose JSON may differ from the text of its key. The
/// two are equal for text and whole numbers, unless a serde attribute changes the JSON.
pub(crate) fn key_fields(keys: &[&Stored<'_>]) -> TokenStream {
    const PLAIN: [&str; 11] =
        ["String", "u8", "u16", "u32", "u64", "usize", "i8", "i16", "i32", "i64", "isize"];
    let plain = keys.iter().take_while(|field| {
        let told = field.source.attrs.iter().any(|attr| attr.path().is_ident("serde"));
        !told && PLAIN.contains(&field.spelled.as_str())
    });
    let names = plain.map(|Stored { name, .. }| name);
    quote!(&[#(#names),*])
}

pub(crate) fn table_ident(ident: &Ident) -> Ident {
    format_ident!("{}Fields", plain_name(ident), span = ident.span())
}

/// Generates the body of `schema()`. A field's role is part of its schema: a type with another key is another type. The
/// shapes are computed once per program.
pub(crate) fn schema(type_name: &str, fields: &[Stored<'_>], roles: &[(&Stored<'_>, String)]) -> TokenStream {
    let entries = fields.iter().map(|Stored { name, spelled, ident, defaulted, custom, .. }| {
        let role = roles.iter().find(|(bearer, _)| bearer.ident == *ident);
        let role = role.map_or("", |(_, role)| role.as_str());
        quote! {
            ::millrace::SchemaField {
                name: #name,
                spelled: #spelled,
                role: #role,
                defaulted: #defaulted,
                custom: #custom,
            }
        }
    });
    quote! {
        static SCHEMA: ::std::sync::OnceLock<::millrace::Schema> = ::std::sync::OnceLock::new();
        let schema = SCHEMA.get_or_init(|| ::millrace::Schema::of::<Self>(#type_name, &[#(#entries),*]));
        ::std::clone::Clone::clone(schema)
    }
}
