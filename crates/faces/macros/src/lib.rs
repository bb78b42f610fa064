//! `#[derive(Event)]`, `#[derive(Entity)]`, `#[derive(Relation)]` and `#[on_event]`: they write down what user types
//! and functions promise to a session.
//!
//! The code they make names `::millrace` and nothing else, so users depend on that crate alone (and on serde, whose
//! derives they put beside these). What is not here: the promises themselves, which are traits of `millrace-session`.
//!
//! Start with [`macro@on_event`]. Each macro is parsed into a plain value first, and only then turned into code.

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
/// The type's name is derived: `UserCreated` is `user.created`. `#[event(name = "..")]` gives another,
/// `#[event(priority = 10)]` another priority than 100.
#[proc_macro_derive(Event, attributes(event))]
pub fn derive_event(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    event::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a struct an entity type: exactly one field carries `#[key]`.
///
/// The type's name is the struct's, `#[entity(name = "..")]` gives another.
#[proc_macro_derive(Entity, attributes(entity, key))]
pub fn derive_entity(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    state::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a struct a relation type: `#[relation(left = User, right = Org)]` names the types of its endpoints, the
/// fields `#[left_key]` and `#[right_key]` their keys. An optional `#[instance_key]` tells edges of one pair apart.
#[proc_macro_derive(Relation, attributes(relation, left_key, right_key, instance_key))]
pub fn derive_relation(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    relation::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a function, plain or `async`, a handler of one event type.
///
/// `#[on_event(OrderPlaced, priority = 10, id = "payments", from = "now")]`: all but the type may be left out. The
/// function stays callable; `handlers![the_function]` finds what this macro writes beside it.
///
/// What holds for this handler alone, where `Config::handlers` does not say otherwise: `timeout_ms`, `max_attempts`,
/// `backoff_base_ms`, `backoff_max_ms`, `concurrency`, `rate_per_s`, `lease_ms`, `paused` (see `HandlerSettings`),
/// `order = "key"` (see `HandlerOrder`).
#[proc_macro_attribute]
pub fn on_event(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let function = parse_macro_input!(item as ItemFn);
    on_event::expand(arguments.into(), &function).into()
}
