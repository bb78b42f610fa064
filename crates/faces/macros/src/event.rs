//! Expands `#[derive(Event)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Error, LitInt, LitStr, Result};

use crate::rename::{Stored, stored_fields};
use crate::type_name;

#[derive(Default)]
struct Options {
    name: Option<LitStr>,
    priority: Option<LitInt>,
}

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let options = Options::read(input)?;
    let ident = &input.ident;
    let type_name = options.type_name(input)?;
    let name_given = options.name.is_some().then(|| {
        quote!(
            const NAME_GIVEN: bool = true;
        )
    });
    let priority = options.priority.map(|priority| quote!(const PRIORITY: i32 = #priority;));
    let fields = stored_fields(input, "an event")?;
    let schema = schema(&fields);
    Ok(quote! {
        #[automatically_derived]
        impl ::millrace::Event for #ident {
            const TYPE: &'static str = #type_name;
            #priority
            #name_given

            fn schema() -> ::millrace::Schema {
                ::millrace::Schema::new(#type_name, #schema)
            }
        }
    })
}

/// Returns the list of field names and type spellings that `Schema::new` takes.
fn schema(fields: &[Stored<'_>]) -> TokenStream {
    let entries = fields.iter().map(|Stored { name, spelled, .. }| quote!((#name, #spelled)));
    quote!(&[#(#entries),*])
}

impl Options {
    fn read(input: &DeriveInput) -> Result<Options> {
        let mut options = Options::default();
        for attr in input.attrs.iter().filter(|attr| attr.path().is_ident("event")) {
            attr.parse_nested_meta(|meta| {
                if meta.path.is_ident("name") {
                    let name: LitStr = meta.value()?.parse()?;
                    type_name::check_event_type(&name)?;
                    options.name = Some(name);
                } else if meta.path.is_ident("priority") {
                    options.priority = Some(priority(meta.value()?.parse()?)?);
                } else {
                    return Err(meta.error("expected `name = \"..\"` or `priority = NUMBER`"));
                }
                Ok(())
            })?;
        }
        Ok(options)
    }

    fn type_name(&self, input: &DeriveInput) -> Result<String> {
        if let Some(name) = &self.name {
            return Ok(name.value());
        }
        let ident = input.ident.to_string();
        let derived = type_name::event_type(ident.strip_prefix("r#").unwrap_or(&ident));
        type_name::event_type_problem(&derived).map_or(Ok(derived), |problem| {
            let message = format!(
                "the derived event type is not a legal name, give one by #[event(name = \"..\")]: {problem}"
            );
            Err(Error::new(input.ident.span(), message))
        })
    }
}

/// Checks that a priority is a whole number, so that the error points at the attribute and not at the generated code.
pub(crate) fn priority(literal: LitInt) -> Result<LitInt> {
    literal
        .base10_parse::<i32>()
        .map_err(|_| Error::new(literal.span(), "a priority is a whole number from 0 to 2147483647"))?;
    Ok(literal)
}
