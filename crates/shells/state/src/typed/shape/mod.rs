//! The shape of a type: what its `Deserialize` accepts, found by tracing it. Names of types and aliases do not matter,
//! the content of nested types does, and neither users nor authors of other crates have to derive anything for it.
//!
//! A type is deserialized repeatedly from a deserializer ([`tracer`]) that records what the type asks for and offers
//! only fields and variants that are not known yet. A type that refuses a made-up value (a date that is no date) ends
//! that round; its request is known by then, and the next round continues behind it.
//!
//! Types that accept any value (`serde_json::Value`, untagged and internally tagged enums) cannot be traced: their
//! shape is `any`, and what they hold inside is not part of it.

mod node;
mod tracer;

use std::collections::BTreeMap;

use serde::de::{Deserialize, DeserializeOwned};

use self::node::{Node, Trace};
use self::tracer::Tracer;

/// The most rounds for a type. Each round finds something, or gives something up as unknown (`?`).
const ROUNDS_MAX: usize = 10_000;

/// Returns the shape of every field of a struct, by its name in JSON. Empty for a type that is not deserialized as a
/// struct.
pub(crate) fn field_shapes<T: DeserializeOwned>() -> BTreeMap<String, String> {
    let (mut root, mut trace) = (Node::default(), Trace::default());
    let mut quiet = 0;
    for _ in 0..ROUNDS_MAX {
        // A round mostly ends with an error: a field that is not offered any more is missing.
        drop(<T as Deserialize<'_>>::deserialize(Tracer { node: &mut root, trace: &mut trace }));
        // A part that told nothing in a round is given up in the next.
        quiet = if trace.has_news() { 0 } else { quiet + 1 };
        if root.is_known() || quiet > 1 {
            break;
        }
    }
    root.fields().map(|(name, node)| (name.to_owned(), node.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};
    use std::num::NonZeroU32;

    use serde::Deserialize;

    use super::*;

    fn shape<T: DeserializeOwned>() -> String {
        #[derive(Deserialize)]
        #[allow(dead_code)]
        struct Of<T> {
            field: T,
        }
        field_shapes::<Of<T>>().remove("field").unwrap()
    }

    /// Refuses everything but one text.
    #[derive(Debug)]
    struct Picky;

    impl<'de> Deserialize<'de> for Picky {
        fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Picky, D::Error> {
            let text = String::deserialize(from)?;
            if text == "picky" { Ok(Picky) } else { Err(serde::de::Error::custom("not picky")) }
        }
    }

    /// Asks for nothing at all.
    #[derive(Debug)]
    struct Mute;

    impl<'de> Deserialize<'de> for Mute {
        fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Mute, D::Error> {
            Err(serde::de::Error::custom("nothing"))
        }
    }

    type Cents = u64;

    #[derive(Deserialize)]
    #[allow(dead_code)]
    struct Meters(f64);

    #[derive(Deserialize)]
    #[allow(dead_code)]
    struct Price {
        picky: Picky,
        cents: Cents,
        mute: Mute,
        per: Option<Unit>,
    }

    #[derive(Deserialize)]
    #[allow(dead_code)]
    enum Unit {
        Piece,
        Weight(u32),
        Box { length: Meters, picky: Picky, count: u8 },
        Pair(i8, char),
    }

    #[derive(Deserialize)]
    #[allow(dead_code)]
    struct Tree {
        name: String,
        below: Vec<Tree>,
        left: Option<Box<Tree>>,
    }

    #[test]
    fn a_shape_is_what_is_inside_and_not_what_it_is_called() {
        assert_eq!((shape::<Cents>(), shape::<std::string::String>()), ("u64".into(), "str".into()));
        assert_eq!((shape::<Box<Meters>>(), shape::<usize>()), ("f64".into(), "u64".into()));
        assert_eq!(shape::<Option<Vec<NonZeroU32>>>(), "option [u32]");
        assert_eq!(shape::<BTreeMap<String, Cents>>(), "{str: u64}");
        assert_eq!(shape::<HashMap<u32, ()>>(), "{u32: unit}");
        assert_eq!(shape::<(u8, String)>(), "(u8, str)");
        assert_eq!(shape::<[u8; 3]>(), "(u8, u8, u8)");
        assert_eq!(shape::<serde_json::Value>(), "any");
    }

    #[test]
    fn what_refuses_made_up_values_hides_nothing_beside_it() {
        let unit = "enum {Box {count: u8, length: f64, picky: str}, Pair (i8, char), Piece, Weight(u32)}";
        assert_eq!(shape::<Price>(), format!("{{cents: u64, mute: ?, per: option {unit}, picky: str}}"));
        assert_eq!(shape::<Vec<Price>>(), format!("[{}]", shape::<Price>()));
        assert_eq!(shape::<BTreeMap<Picky2, Price>>(), "{str: ?}", "what is behind a key that is refused");
    }

    #[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Picky2;

    impl<'de> Deserialize<'de> for Picky2 {
        fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Picky2, D::Error> {
            Picky::deserialize(from).map(|_| Picky2)
        }
    }

    #[test]
    fn a_type_that_holds_itself_has_an_end() {
        assert_eq!(shape::<Tree>(), "{below: [again Tree], left: option again Tree, name: str}");
    }
}
