//! Expands `#[derive(Relation)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Error, Result, Type};

use crate::rename::{Stored, stored_fields};
use crate::spelling::spell;
use crate::state::{
    at_most_one, exactly_one, given_name, key_fields, plain_name, schema, table, table_ident,
};

struct Options {
    name: String,
    left: Type,
    right: Type,
}

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let ident = &input.ident;
    let Options { name, left, right } = Options::read(input)?;
    let fields = stored_fields(input, "a relation")?;
    let left_key = exactly_one(input, &fields, "left_key")?;
    let right_key = exactly_one(input, &fields, "right_key")?;
    let instance_key = at_most_one(&fields, "instance_key")?;
    one_role_each(&[Some(left_key), Some(right_key), instance_key])?;
    let mut roles = vec![
        (left_key, format!("left key of {}", spell(&left))),
        (right_key, format!("right key of {}", spell(&right))),
    ];
    roles.extend(instance_key.map(|field| (field, "instance key".to_owned())));

    let (table, table_ident) = (table(input, &fields), table_ident(ident));
    let schema = schema(&name, &fields, &roles);
    let key_fields = key_fields(&[left_key, right_key]);
    let has_instance_key = instance_key.is_some();
    let (left_ident, right_ident) = (left_key.ident, right_key.ident);
    let instance = instance_key.map(|Stored { ident, .. }| {
        quote! {
            fn instance_key(&self) -> ::std::string::String {
                ::millrace::Key::into_key(&self.#ident)
            }
        }
    });
    Ok(quote! {
        #table

        #[automatically_derived]
        impl ::millrace::Stateful for #ident {
            const KIND: ::millrace::StateKind = ::millrace::StateKind::Relation;
            const TYPE: &'static str = #name;
            type Fields = #table_ident;
            const KEY_FIELDS: &'static [&'static str] = #key_fields;
            const HAS_INSTANCE_KEY: bool = #has_instance_key;

            fn identity(&self) -> ::millrace::Identity {
                ::millrace::Identity::Relation {
                    type_name: ::std::string::String::from(#name),
                    left_key: ::millrace::Relation::left_key(self),
                    right_key: ::millrace::Relation::right_key(self),
                    instance_key: ::millrace::Relation::instance_key(self),
                }
            }

            fn schema() -> ::millrace::Schema {
                #schema
            }
        }

        #[automatically_derived]
        impl ::millrace::Relation for #ident {
            type Left = #left;
            type Right = #right;

            fn left_key(&self) -> ::std::string::String {
                ::millrace::Key::into_key(&self.#left_ident)
            }

            fn right_key(&self) -> ::std::string::String {
                ::millrace::Key::into_key(&self.#right_ident)
            }

            #instance
        }
    })
}

impl Options {
    fn read(input: &DeriveInput) -> Result<Options> {
        let (mut name, mut left, mut right) = (None, None, None);
        for attr in input.attrs.iter().filter(|attr| attr.path().is_ident("relation")) {
            attr.parse_nested_meta(|meta| {
                if meta.path.is_ident("name") {
                    name = Some(given_name(&meta.value()?.parse()?)?);
                } else if meta.path.is_ident("left") {
                    left = Some(meta.value()?.parse::<Type>()?);
                } else if meta.path.is_ident("right") {
                    right = Some(meta.value()?.parse::<Type>()?);
                } else {
                    return Err(meta.error("expected `left = Entity`, `right = Entity` or `name = \"..\"`"));
                }
                Ok(())
            })?;
        }
        let (Some(left), Some(right)) = (left, right) else {
            let message =
                "a relation names its endpoints: #[relation(left = SomeEntity, right = OtherEntity)]";
            return Err(Error::new(input.ident.span(), message));
        };
        Ok(Options { name: name.unwrap_or_else(|| plain_name(&input.ident)), left, right })
    }
}

fn one_role_each(bearers: &[Option<&Stored<'_>>]) -> Result<()> {
    for (at, field) in bearers.iter().flatten().enumerate() {
        if bearers.iter().flatten().skip(at + 1).any(|other| other.ident == field.ident) {
            return Err(Error::new(
                field.ident.span(),
                "one field, one role: the keys of a relation are fields of their own",
            ));
        }
    }
    Ok(())
}
