//! The knowledge about a type so far.

use std::collections::BTreeMap;
use std::fmt;

/// The most parts of a type that are traced; the rest stays unknown.
const NODES_MAX: usize = 20_000;

#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) kind: Kind,
    /// The count of findings when this part was last offered.
    offered_at: Option<usize>,
    /// The part was offered and nothing was found: what is unknown about it stays unknown.
    given_up: bool,
}

#[derive(Debug, Default)]
pub(super) enum Kind {
    #[default]
    Unknown,
    Leaf(&'static str),
    Option(Box<Node>),
    Seq(Box<Node>),
    Tuple(Vec<Node>),
    Map(Box<(Node, Node)>),
    Struct(BTreeMap<&'static str, Node>),
    Enum(BTreeMap<&'static str, Node>),
    /// A variant that holds a single value.
    Newtype(Box<Node>),
    /// A type inside itself.
    Again(&'static str),
}

/// The progress of tracing a type.
#[derive(Debug, Default)]
pub(super) struct Trace {
    news: usize,
    news_before: usize,
    nodes: usize,
    /// Structs and enums that are being deserialized, the outermost first.
    pub(super) path: Vec<(&'static str, &'static [&'static str])>,
}

impl Trace {
    /// Returns whether anything was found since the last call.
    pub(super) fn has_news(&mut self) -> bool {
        let before = std::mem::replace(&mut self.news_before, self.news);
        self.path.clear();
        before != self.news
    }

    pub(super) fn is_full(&self) -> bool {
        self.nodes >= NODES_MAX
    }
}

impl Node {
    /// Sets the kind of a part that was unknown so far.
    pub(super) fn know(&mut self, trace: &mut Trace, parts: usize, kind: impl FnOnce() -> Kind) {
        if matches!(self.kind, Kind::Unknown) {
            self.kind = kind();
            trace.news += 1;
            trace.nodes += 1 + parts;
        }
    }

    /// Returns whether another round could not find more.
    pub(super) fn is_known(&self) -> bool {
        self.given_up
            || match &self.kind {
                Kind::Unknown => false,
                Kind::Leaf(_) | Kind::Again(_) => true,
                Kind::Option(inner) | Kind::Seq(inner) | Kind::Newtype(inner) => inner.is_known(),
                Kind::Tuple(parts) => parts.iter().all(Node::is_known),
                Kind::Map(both) => both.0.is_known() && both.1.is_known(),
                Kind::Struct(parts) | Kind::Enum(parts) => parts.values().all(Node::is_known),
            }
    }

    /// Marks that the part is about to be offered. Returns false if nothing was found since the last offer: then the
    /// part is given up.
    pub(super) fn offer(&mut self, trace: &mut Trace) -> bool {
        if self.offered_at == Some(trace.news) {
            self.given_up = true;
            trace.news += 1;
            return false;
        }
        self.offered_at = Some(trace.news);
        true
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = (&'static str, &Node)> {
        let fields = if let Kind::Struct(fields) = &self.kind { Some(fields) } else { None };
        fields.into_iter().flatten().map(|(name, node)| (*name, node))
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Unknown => f.write_str("?"),
            Kind::Leaf(name) => f.write_str(name),
            Kind::Option(inner) => write!(f, "option {inner}"),
            Kind::Seq(inner) => write!(f, "[{inner}]"),
            Kind::Newtype(inner) => write!(f, "({inner})"),
            Kind::Tuple(parts) => {
                f.write_str("(")?;
                for (at, part) in parts.iter().enumerate() {
                    write!(f, "{}{part}", if at > 0 { ", " } else { "" })?;
                }
                f.write_str(")")
            }
            Kind::Map(both) => write!(f, "{{{}: {}}}", both.0, both.1),
            Kind::Struct(fields) => {
                f.write_str("{")?;
                for (at, (name, node)) in fields.iter().enumerate() {
                    write!(f, "{}{name}: {node}", if at > 0 { ", " } else { "" })?;
                }
                f.write_str("}")
            }
            Kind::Enum(variants) => {
                f.write_str("enum {")?;
                for (at, (name, node)) in variants.iter().enumerate() {
                    f.write_str(if at > 0 { ", " } else { "" })?;
                    match &node.kind {
                        Kind::Leaf("unit") => f.write_str(name)?,
                        Kind::Newtype(_) => write!(f, "{name}{node}")?,
                        _ => write!(f, "{name} {node}")?,
                    }
                }
                f.write_str("}")
            }
            Kind::Again(name) => write!(f, "again {name}"),
        }
    }
}
