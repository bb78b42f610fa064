//! Spells the type of a field for a schema: the tokens of the source without spaces.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::Type;

pub(crate) fn spell(ty: &Type) -> String {
    let mut out = String::new();
    write(ty.to_token_stream(), &mut out);
    out
}

fn write(tokens: TokenStream, out: &mut String) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Brace => ("{", "}"),
                    // Macros wrap the tokens that they pass on in an invisible group.
                    Delimiter::None => ("", ""),
                };
                out.push_str(open);
                write(group.stream(), out);
                out.push_str(close);
            }
            TokenTree::Punct(punct) => out.push(punct.as_char()),
            word @ (TokenTree::Ident(_) | TokenTree::Literal(_)) => {
                let word = word.to_string();
                // Two words in a row (`dyn Trait`, `'static str`) need a space between them.
                if out.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
                    out.push(' ');
                }
                out.push_str(&word);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_do_not_change_a_spelling() {
        for (source, spelled) in [
            ("String", "String"),
            ("Option < String >", "Option<String>"),
            ("Vec<( u8,i32 )>", "Vec<(u8,i32)>"),
            ("std :: collections::BTreeMap<String , Vec<u8>>", "std::collections::BTreeMap<String,Vec<u8>>"),
            ("[u8 ; 4]", "[u8;4]"),
            ("Box<dyn Fn( u8 ) -> u8>", "Box<dyn Fn(u8)->u8>"),
            ("&'static str", "&'static str"),
        ] {
            let ty: Type = syn::parse_str(source).unwrap();
            assert_eq!(spell(&ty), spelled);
        }
    }
}
