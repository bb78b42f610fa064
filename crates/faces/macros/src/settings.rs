//! The settings of one handler in `#[on_event]`: their names, the values they take, and the code generated for them.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{ToTokens, quote};
use syn::parse::ParseStream;
use syn::{Error, Lit, LitBool, LitInt, LitStr, Result};

/// Settings that take a whole number of at least 1.
const COUNTS: [&str; 4] = ["timeout_ms", "max_attempts", "concurrency", "lease_ms"];
/// Settings that take a whole number, also 0.
const TIMES: [&str; 2] = ["backoff_base_ms", "backoff_max_ms"];

/// The settings in the order they were written.
#[derive(Default)]
pub(crate) struct Settings(Vec<Setting>);

struct Setting {
    name: Ident,
    value: TokenStream,
    /// The value, if the setting takes a whole number.
    number: Option<u64>,
}

impl Settings {
    /// The settings allowed beside `priority`, `id` and `from`, for error messages.
    pub(crate) const NAMES: &'static str = "`timeout_ms`, `max_attempts`, `backoff_base_ms`, `backoff_max_ms`, `concurrency`, `rate_per_s`, `lease_ms`, \
         `paused` or `order`";

    /// Reads the value if `name` is the name of a setting. Returns whether it is.
    pub(crate) fn read(&mut self, name: &Ident, input: ParseStream<'_>) -> Result<bool> {
        let text = name.to_string();
        let (value, number) = match text.as_str() {
            "paused" => (input.parse::<LitBool>()?.into_token_stream(), None),
            "rate_per_s" => (rate(&input.parse()?)?, None),
            "order" => (order(&input.parse()?)?, None),
            count if COUNTS.contains(&count) => whole(name, &input.parse()?, 1)?,
            time if TIMES.contains(&time) => whole(name, &input.parse()?, 0)?,
            _ => return Ok(false),
        };
        if self.0.iter().any(|setting| setting.name == text) {
            return Err(Error::new(name.span(), format!("`{text}` is said twice")));
        }
        self.0.push(Setting { name: name.clone(), value, number });
        Ok(true)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let number = |name: &str| self.0.iter().find(|setting| setting.name == name).and_then(|of| of.number);
        match (self.0.iter().find(|setting| setting.name == "lease_ms"), number("timeout_ms")) {
            (Some(lease), Some(timeout_ms)) if lease.number < Some(timeout_ms) => {
                Err(Error::new(lease.name.span(), "the lease ends before the timeout: raise `lease_ms`"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the code that applies the settings, or `None` if there are none.
    pub(crate) fn code(&self) -> Option<TokenStream> {
        let fields = self
            .0
            .iter()
            .map(|Setting { name, value, .. }| quote!(#name: ::std::option::Option::Some(#value)));
        (!self.0.is_empty()).then(|| {
            quote!(.with_settings(::millrace::HandlerSettings {
                #(#fields,)*
                ..::std::default::Default::default()
            }))
        })
    }
}

fn whole(name: &Ident, literal: &LitInt, least: u64) -> Result<(TokenStream, Option<u64>)> {
    // Attempts are counted in 32 bits.
    let most = if name == "max_attempts" { u64::from(u32::MAX) } else { i64::MAX as u64 };
    match literal.base10_parse::<u64>() {
        Ok(number) if (least..=most).contains(&number) => {
            Ok((Literal::u64_unsuffixed(number).into_token_stream(), Some(number)))
        }
        _ => {
            let problem = format!("`{name}` is a whole number from {least} to {most}");
            Err(Error::new(literal.span(), problem))
        }
    }
}

fn rate(literal: &Lit) -> Result<TokenStream> {
    let number = match literal {
        Lit::Int(number) => number.base10_parse::<f64>().ok(),
        Lit::Float(number) => number.base10_parse::<f64>().ok(),
        _ => None,
    };
    match number {
        Some(number) if (0.000_01..=1_000_000.0).contains(&number) => {
            Ok(Literal::f64_unsuffixed(number).into_token_stream())
        }
        _ => Err(Error::new(literal.span(), "`rate_per_s` is a number from 0.00001 to 1000000")),
    }
}

fn order(literal: &LitStr) -> Result<TokenStream> {
    match literal.value().as_str() {
        "key" => Ok(quote!(::millrace::HandlerOrder::Key)),
        "priority" => Ok(quote!(::millrace::HandlerOrder::Priority)),
        _ => Err(Error::new(literal.span(), "`order` is \"key\" or \"priority\"")),
    }
}
