//! Expands `#[on_event]`.

use proc_macro2::{Ident, TokenStream};
use quote::{quote, quote_spanned};
use syn::parse::{Parse, ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{Error, FnArg, ItemFn, LitInt, LitStr, Result, Token, Type};

use crate::event::priority;
use crate::settings::Settings;
use crate::state::plain_name;
use crate::type_name::check_handler_id;

struct Options {
    event: Type,
    id: Option<LitStr>,
    priority: Option<LitInt>,
    from_now: bool,
    settings: Settings,
}

/// Returns the function and its handler specification. The function is kept even after an error, so that one mistake is
/// reported once and not at every use of the function.
pub(crate) fn expand(arguments: TokenStream, function: &ItemFn) -> TokenStream {
    let spec = Options::parse.parse2(arguments).and_then(|options| spec(&options, function));
    let spec = spec.unwrap_or_else(Error::into_compile_error);
    quote! {
        #function
        #spec
    }
}

fn spec(options: &Options, function: &ItemFn) -> Result<TokenStream> {
    check_signature(function)?;
    options.settings.check()?;
    let (ident, visibility, event) = (&function.sig.ident, &function.vis, &options.event);
    let id = options.id.as_ref().map_or_else(
        || {
            let name = plain_name(ident);
            quote!(::std::concat!(::std::module_path!(), ":", #name))
        },
        |id| quote!(#id),
    );
    let call = call(ident, event, function);
    let make = if function.sig.asyncness.is_some() { quote!(from_async_fn) } else { quote!(from_fn) };
    let priority = options.priority.as_ref().map(|priority| quote!(.with_priority(#priority)));
    let start = options.from_now.then(|| quote!(.starting(::millrace::Start::Now)));
    let settings = options.settings.code();
    // Generate a type with the function's name and no constructor. Types have a namespace of their own, so the function
    // can still be called, and `handlers![module::function]` finds the type by the same path.
    Ok(quote! {
        #[doc(hidden)]
        #[allow(non_camel_case_types, missing_debug_implementations, unreachable_pub, dead_code)]
        #visibility struct #ident {}

        #[automatically_derived]
        impl ::millrace::HandlerSpec for #ident {
            #[allow(clippy::needless_update)]
            fn handler() -> ::millrace::Handler {
                #call
                ::millrace::Handler::#make::<#event>(#id, call) #priority #start #settings
            }
        }
    })
}

/// Generates a function `call` with the exact signature that is expected, so that the compiler reports a handler of
/// another event type at the handler, in terms of its types.
fn call(ident: &Ident, event: &Type, function: &ItemFn) -> TokenStream {
    let span = function.sig.inputs.first().map_or_else(|| ident.span(), Spanned::span);
    let run = quote_spanned!(span=> #ident(context));
    if function.sig.asyncness.is_some() {
        quote! {
            fn call<'a>(
                context: &'a mut ::millrace::HandlerContext<#event>,
            ) -> ::millrace::LocalFuture<'a, ::millrace::HandlerResult> {
                ::std::boxed::Box::pin(async move {
                    ::millrace::IntoHandlerResult::into_handler_result(#run.await)
                })
            }
        }
    } else {
        quote! {
            fn call(context: &mut ::millrace::HandlerContext<#event>) -> ::millrace::HandlerResult {
                ::millrace::IntoHandlerResult::into_handler_result(#run)
            }
        }
    }
}

fn check_signature(function: &ItemFn) -> Result<()> {
    let signature = &function.sig;
    if let Some(param) = signature.generics.params.first() {
        return Err(Error::new(param.span(), "a handler cannot be generic: its id stands for one function"));
    }
    let expected = "a handler takes one argument: ctx: &mut HandlerContext<SomeEvent>";
    match signature.inputs.first() {
        Some(FnArg::Typed(_)) if signature.inputs.len() == 1 => Ok(()),
        Some(FnArg::Receiver(receiver)) => {
            Err(Error::new(receiver.span(), "a handler is a free function, not a method"))
        }
        Some(_) => Err(Error::new(signature.inputs.span(), expected)),
        None => Err(Error::new(signature.ident.span(), expected)),
    }
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Options> {
        if input.is_empty() {
            return Err(input.error("name the event type: #[on_event(SomeEvent)]"));
        }
        let (id, priority, settings) = (None, None, Settings::default());
        let mut options = Options { event: input.parse()?, id, priority, from_now: false, settings };
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if input.is_empty() {
                break;
            }
            options.read_one(input)?;
        }
        Ok(options)
    }
}

impl Options {
    fn read_one(&mut self, input: ParseStream<'_>) -> Result<()> {
        let name: Ident = input.parse()?;
        input.parse::<Token![=]>()?;
        if name == "id" {
            let id: LitStr = input.parse()?;
            check_handler_id(&id)?;
            self.id = Some(id);
        } else if name == "priority" {
            self.priority = Some(priority(input.parse()?)?);
        } else if name == "from" {
            let from: LitStr = input.parse()?;
            self.from_now = match from.value().as_str() {
                "now" => true,
                "earliest" => false,
                _ => return Err(Error::new(from.span(), "from is \"now\" or \"earliest\"")),
            };
        } else if !self.settings.read(&name, input)? {
            let expected = format!("expected `priority`, `id`, `from`, {}", Settings::NAMES);
            return Err(Error::new(name.span(), expected));
        }
        Ok(())
    }
}
