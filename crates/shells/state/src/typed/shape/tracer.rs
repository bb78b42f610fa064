//! The deserializer that records what it is asked for, and returns made-up values.

use std::collections::BTreeMap;

use serde::de::value::{Error, StrDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

use super::node::{Kind, Node, Trace};

type Result<T> = std::result::Result<T, Error>;

pub(super) struct Tracer<'a> {
    pub(super) node: &'a mut Node,
    pub(super) trace: &'a mut Trace,
}

fn over() -> Error {
    Error::custom("this round is over")
}

/// Methods for leaves: a name, and a value each. The values are ones, because some types refuse zeros.
macro_rules! leaves {
    ($($method:ident $name:literal $visit:ident($($value:expr)?);)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            self.node.know(self.trace, 0, || Kind::Leaf($name));
            visitor.$visit($($value)?)
        })*
    };
}

impl<'de> Deserializer<'de> for Tracer<'_> {
    type Error = Error;

    leaves! {
        deserialize_bool "bool" visit_bool(true);
        deserialize_i8 "i8" visit_i8(1);
        deserialize_i16 "i16" visit_i16(1);
        deserialize_i32 "i32" visit_i32(1);
        deserialize_i64 "i64" visit_i64(1);
        deserialize_i128 "i128" visit_i128(1);
        deserialize_u8 "u8" visit_u8(1);
        deserialize_u16 "u16" visit_u16(1);
        deserialize_u32 "u32" visit_u32(1);
        deserialize_u64 "u64" visit_u64(1);
        deserialize_u128 "u128" visit_u128(1);
        deserialize_f32 "f32" visit_f32(1.0);
        deserialize_f64 "f64" visit_f64(1.0);
        deserialize_char "char" visit_char('1');
        deserialize_str "str" visit_str("1");
        deserialize_string "str" visit_str("1");
        deserialize_identifier "str" visit_str("1");
        deserialize_bytes "bytes" visit_bytes(&[1]);
        deserialize_byte_buf "bytes" visit_bytes(&[1]);
        deserialize_unit "unit" visit_unit();
        deserialize_any "any" visit_unit();
        deserialize_ignored_any "any" visit_unit();
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        self.deserialize_unit(visitor)
    }

    /// In JSON a newtype is the value that it holds.
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let Tracer { node, trace } = self;
        node.know(trace, 1, || Kind::Option(Box::default()));
        if let Kind::Option(inner) = &mut node.kind
            && !inner.is_known()
            && inner.offer(trace)
        {
            return visitor.visit_some(Tracer { node: inner, trace });
        }
        visitor.visit_none()
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let Tracer { node, trace } = self;
        node.know(trace, 1, || Kind::Seq(Box::default()));
        let mut nodes: &mut [Node] = &mut [];
        if let Kind::Seq(inner) = &mut node.kind
            && !inner.is_known()
            && inner.offer(trace)
        {
            nodes = std::slice::from_mut(inner.as_mut());
        }
        visitor.visit_seq(TracedParts { nodes: nodes.iter_mut(), trace })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value> {
        if self.trace.is_full() {
            return Err(over());
        }
        self.node
            .know(self.trace, len, || Kind::Tuple(std::iter::repeat_with(Node::default).take(len).collect()));
        match &mut self.node.kind {
            Kind::Tuple(parts) => {
                visitor.visit_seq(TracedParts { nodes: parts.iter_mut(), trace: self.trace })
            }
            _ => Err(over()),
        }
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let Tracer { node, trace } = self;
        node.know(trace, 2, || Kind::Map(Box::default()));
        let mut entry = None;
        if let Kind::Map(both) = &mut node.kind
            && !(both.0.is_known() && both.1.is_known())
            && both.1.offer(trace)
        {
            entry = Some(both.as_mut());
        }
        visitor.visit_map(TracedEntry { both: entry, trace })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let Tracer { node, trace } = self;
        if !enter(node, trace, name, fields) {
            return Err(over());
        }
        node.know(trace, fields.len(), || Kind::Struct(parts(fields)));
        let value = read_struct(node, trace, fields, visitor);
        trace.path.pop();
        value
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let Tracer { node, trace } = self;
        if !enter(node, trace, name, variants) {
            return Err(over());
        }
        node.know(trace, variants.len(), || Kind::Enum(parts(variants)));
        let Kind::Enum(known) = &mut node.kind else { return Err(over()) };
        // If all variants are known, the first one is used.
        let unknown = variants.iter().find(|variant| {
            known.get_mut(**variant).is_some_and(|node| !node.is_known() && node.offer(trace))
        });
        let Some(variant) = unknown.or_else(|| variants.first()).copied() else { return Err(over()) };
        let Some(node) = known.get_mut(variant) else { return Err(over()) };
        let value = visitor.visit_enum(Choice { variant, node, trace });
        trace.path.pop();
        value
    }
}

fn parts(names: &'static [&'static str]) -> BTreeMap<&'static str, Node> {
    names.iter().map(|name| (*name, Node::default())).collect()
}

/// Returns false for a type inside itself, or if the limit of parts is reached.
fn enter(node: &mut Node, trace: &mut Trace, name: &'static str, names: &'static [&'static str]) -> bool {
    if trace.path.contains(&(name, names)) {
        node.know(trace, 0, || Kind::Again(name));
        return false;
    }
    if trace.is_full() {
        return false;
    }
    trace.path.push((name, names));
    true
}

/// Offers the fields that are not known yet; if all are known, offers all of them, to get a value.
fn read_struct<'de, V: Visitor<'de>>(
    node: &mut Node,
    trace: &mut Trace,
    fields: &'static [&'static str],
    visitor: V,
) -> Result<V::Value> {
    let all = node.is_known();
    let Kind::Struct(known) = &mut node.kind else { return Err(over()) };
    visitor.visit_map(TracedFields { names: fields.iter(), known, all, trace, next: None })
}

struct TracedParts<'a, I> {
    nodes: I,
    trace: &'a mut Trace,
}

impl<'de, 'n, I: Iterator<Item = &'n mut Node>> SeqAccess<'de> for TracedParts<'_, I> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        let Some(node) = self.nodes.next() else { return Ok(None) };
        seed.deserialize(Tracer { node, trace: self.trace }).map(Some)
    }
}

/// An entry of a map, or none.
struct TracedEntry<'a> {
    both: Option<&'a mut (Node, Node)>,
    trace: &'a mut Trace,
}

impl<'de> MapAccess<'de> for TracedEntry<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        let Some(both) = &mut self.both else { return Ok(None) };
        seed.deserialize(Tracer { node: &mut both.0, trace: self.trace }).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        let Some(both) = self.both.take() else { return Err(over()) };
        seed.deserialize(Tracer { node: &mut both.1, trace: self.trace })
    }
}

struct TracedFields<'a> {
    names: std::slice::Iter<'static, &'static str>,
    known: &'a mut BTreeMap<&'static str, Node>,
    all: bool,
    trace: &'a mut Trace,
    /// The field whose value comes next.
    next: Option<&'static str>,
}

impl<'de> MapAccess<'de> for TracedFields<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        for name in self.names.by_ref() {
            let Some(node) = self.known.get_mut(*name) else { continue };
            if self.all || (!node.is_known() && node.offer(self.trace)) {
                self.next = Some(name);
                let key: StrDeserializer<'_, Error> = (*name).into_deserializer();
                return seed.deserialize(key).map(Some);
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        let node = self.next.take().and_then(|name| self.known.get_mut(name));
        let Some(node) = node else { return Err(over()) };
        seed.deserialize(Tracer { node, trace: self.trace })
    }
}

struct Choice<'a> {
    variant: &'static str,
    node: &'a mut Node,
    trace: &'a mut Trace,
}

impl<'de, 'a> EnumAccess<'de> for Choice<'a> {
    type Error = Error;
    type Variant = Tracer<'a>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Tracer<'a>)> {
        let name: StrDeserializer<'_, Error> = self.variant.into_deserializer();
        Ok((seed.deserialize(name)?, Tracer { node: self.node, trace: self.trace }))
    }
}

impl<'de> VariantAccess<'de> for Tracer<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<()> {
        self.node.know(self.trace, 0, || Kind::Leaf("unit"));
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value> {
        self.node.know(self.trace, 1, || Kind::Newtype(Box::default()));
        let Kind::Newtype(inner) = &mut self.node.kind else { return Err(over()) };
        seed.deserialize(Tracer { node: inner, trace: self.trace })
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value> {
        self.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let Tracer { node, trace } = self;
        node.know(trace, fields.len(), || Kind::Struct(parts(fields)));
        read_struct(node, trace, fields, visitor)
    }
}
