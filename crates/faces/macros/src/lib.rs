//! The macros `#[derive(Event)]`, `#[derive(Entity)]`, `#[derive(Relation)]` and `#[on_event]`. They implement, for
//! users' types and functions, the traits that a session needs.
//!
//! The generated code names only `::millrace`, so users depend on that crate alone (and on serde, whose derives they
//! write beside these). The traits themselves are in `millrace-session`.
//!
//! Start with [`macro@on_event`]. Each macro first parses its input into a plain value, and only then generates code.

mod event;
mod on_event;
mod relation;
mod rename;
mod settings;
mod spelling;
mod state;
mod type_name;

use proc_macro::TokenStream;
use syn::{DeriveInput, ItemFn, parse_macro_input};

/// Makes a struct an event type.
///
/// The event type's name is derived from the struct's: `UserCreated` becomes `user.created`. `#[event(name = "..")]`
/// sets another name, `#[event(priority = 10)]` another priority than 100.
#[proc_macro_derive(Event, attributes(event))]
pub fn derive_event(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    event::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a struct an entity type: exactly one field carries `#[key]`.
///
/// The type's name is the struct's; `#[entity(name = "..")]` sets another.
#[proc_macro_derive(Entity, attributes(entity, key))]
pub fn derive_entity(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    state::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a struct a relation type: `#[relation(left = User, right = Org)]` names the types of its endpoints, and the
/// fields with `#[left_key]` and `#[right_key]` hold their keys. An optional `#[instance_key]` distinguishes edges of
/// the same pair.
#[proc_macro_derive(Relation, attributes(relation, left_key, right_key, instance_key))]
pub fn derive_relation(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    relation::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a function, plain or `async`, a handler of one event type.
///
/// In `#[on_event(OrderPlaced, priority = 10, id = "payments", from = "now")]`, everything but the type is optional.
/// The function stays callable; `handlers![the_function]` finds the type that this macro generates beside the function.
///
/// Settings for this handler alone, which `Config::handlers` overrides: `timeout_ms`, `max_attempts`,
/// `backoff_base_ms`, `backoff_max_ms`, `concurrency`, `rate_per_s`, `lease_ms`, `paused` (see `HandlerSettings`),
/// `order = "key"` (see `HandlerOrder`).
#[proc_macro_attribute]
pub fn on_event(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let function = parse_macro_input!(item as ItemFn);
    on_event::expand(arguments.into(), &function).into()
}
