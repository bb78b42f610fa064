//! Handlers without code: a script lists the replies to the calls of each operation.
//!
//! ```json
//! {"handlers": {"Ask::number": [{"do": "resume", "value": {"arg": 0, "mul": 2}}, {"do": "end", "value": 7, "after_ms":
//! 10}]}}
//! ```
//!
//! A handler is found by the end of an operation's label. Its replies are used in the order of the calls, over all
//! runs; the last one repeats. A reply's value is a value as in `tagged.rs`, or a formula of the call's arguments:
//! `{"arg": k, "mul": m, "add": a, "plus_arg": j}` is `arg_k * m + a + arg_j`.

use serde_json::{Map, Value as Json};

use crate::tagged::{NumberError, TaggedError, check_numbers, from_tagged};
use crate::value::Value;

/// Replies in one script: a larger one is refused.
pub const SCRIPT_REPLIES_MAX: usize = 1 << 20;

/// Any other key is an error: a misspelled key would otherwise be ignored silently.
const REPLY_KEYS: [&str; 4] = ["do", "value", "after_ms", "error"];
const FORMULA_KEYS: [&str; 4] = ["arg", "mul", "add", "plus_arg"];

/// The action of a scripted handler when it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptAction {
    Resume,
    Tail,
    End,
    /// The handler fails with the reply's error text.
    Throw,
    /// The handler returns its value without a continuation call, which fails the run.
    Plain,
}

impl ScriptAction {
    pub fn as_str(self) -> &'static str {
        match self {
            ScriptAction::Resume => "resume",
            ScriptAction::Tail => "tail",
            ScriptAction::End => "end",
            ScriptAction::Throw => "throw",
            ScriptAction::Plain => "plain",
        }
    }

    pub fn parse(text: &str) -> Option<ScriptAction> {
        use ScriptAction::{End, Plain, Resume, Tail, Throw};
        [Resume, Tail, End, Throw, Plain].into_iter().find(|action| action.as_str() == text)
    }
}

/// A script that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    #[error("the script is not valid JSON: {0}")]
    NotJson(serde_json::Error),
    #[error("the script must be {{\"handlers\":{{\"Effect::op\":[REPLY,...]}}}}, but {0}")]
    Shape(String),
    #[error("handler {handler}, reply {at}: {problem}")]
    Reply { handler: String, at: usize, problem: ReplyProblem },
    #[error("the script: {0}")]
    Number(#[from] NumberError),
    #[error("the script has more than {SCRIPT_REPLIES_MAX} replies")]
    TooLong,
}

/// A mistake in one reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyProblem {
    #[error("a reply must be an object such as {{\"do\":\"resume\",\"value\":1}}, not {0}")]
    NoObject(String),
    #[error("\"do\" is {0}: it must be \"resume\", \"tail\", \"end\", \"throw\" or \"plain\"")]
    Action(String),
    #[error("{key:?} is no key of a reply: it takes \"do\", \"value\", \"after_ms\" and \"error\"")]
    UnknownKey { key: String },
    #[error(
        "{key:?} is no key of a formula: it takes \"arg\", \"mul\", \"add\" and \"plus_arg\" (a record with a field arg is \
         {{\"map\":[[\"arg\",...],...]}})"
    )]
    UnknownFormulaKey { key: String },
    #[error("\"{field}\" is {found}: it must be {expected}")]
    Field { field: &'static str, found: String, expected: &'static str },
    #[error(transparent)]
    Value(#[from] TaggedError),
}

/// The formula does not fit the arguments of a call: the handler fails with this text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormulaError {
    #[error("the script asks for argument {index}, but the call has {count} (counted from 0)")]
    NoArgument { index: usize, count: usize },
    #[error("the script computes with argument {index}, which is a {found} and no number")]
    NoNumber { index: usize, found: &'static str },
    #[error("the script's formula leaves the range of 64-bit integers")]
    Overflow,
}

/// A reply of a script to one call.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptReply {
    pub action: ScriptAction,
    value: ScriptValue,
    pub after_ms: Option<u64>,
    /// For `throw`.
    pub error: String,
}

#[derive(Clone, Debug, PartialEq)]
enum ScriptValue {
    Literal(Value),
    Formula(Formula),
}

#[derive(Clone, Debug, PartialEq)]
struct Formula {
    arg: usize,
    mul: Number,
    add: Number,
    plus_arg: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Number {
    Int(i64),
    Float(f64),
}

/// The handlers of one script and the progress of each.
#[derive(Clone, Debug, Default)]
pub struct Script {
    handlers: Vec<ScriptHandler>,
}

#[derive(Clone, Debug)]
struct ScriptHandler {
    suffix: String,
    replies: Vec<ScriptReply>,
    calls: usize,
}

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    ///
    /// [`ScriptError`] says which reply is wrong and what would be right.
    pub fn parse(text: &str) -> Result<Script, ScriptError> {
        let json: Json = serde_json::from_str(text).map_err(ScriptError::NotJson)?;
        check_numbers(text)?;
        let handlers = json.get("handlers").and_then(Json::as_object);
        let handlers =
            handlers.ok_or_else(|| ScriptError::Shape("there is no object \"handlers\"".into()))?;
        let handlers = handlers.iter().map(|(name, replies)| handler(name, replies));
        let handlers = handlers.collect::<Result<Vec<_>, _>>()?;
        if handlers.iter().map(|handler| handler.replies.len()).sum::<usize>() > SCRIPT_REPLIES_MAX {
            return Err(ScriptError::TooLong);
        }
        Ok(Script { handlers })
    }

    /// The names that handlers have in the script.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.handlers.iter().map(|handler| handler.suffix.as_str())
    }

    /// The handler for an operation with this label: of several that match its end, the one with the longest name.
    pub fn find(&self, label: &str) -> Option<usize> {
        let matching =
            self.handlers.iter().enumerate().filter(|(_, handler)| label_ends_with(label, &handler.suffix));
        matching.max_by_key(|(_, handler)| handler.suffix.len()).map(|(at, _)| at)
    }

    /// The reply to the next call of a handler that [`Script::find`] found.
    pub fn next_reply(&mut self, handler: usize) -> Option<&ScriptReply> {
        let handler = self.handlers.get_mut(handler)?;
        let at = handler.calls.min(handler.replies.len().checked_sub(1)?);
        handler.calls = handler.calls.saturating_add(1);
        handler.replies.get(at)
    }
}

/// The name of an operation in scripts and traces: `Effect::op` for the label `module::Effect.op`.
pub fn short_label(label: &str) -> String {
    let public = public_label(label);
    let parts: Vec<&str> = public.rsplitn(3, "::").collect();
    match parts.as_slice() {
        [op, effect, ..] => format!("{effect}::{op}"),
        _ => public,
    }
}

/// The label with `::` before the operation instead of a dot.
fn public_label(label: &str) -> String {
    label.rsplit_once('.').map_or_else(|| label.to_owned(), |(effect, op)| format!("{effect}::{op}"))
}

/// Whether a label ends with these whole segments.
fn label_ends_with(label: &str, suffix: &str) -> bool {
    let (label, suffix) = (public_label(label), public_label(suffix));
    match label.strip_suffix(suffix.as_str()) {
        Some(before) => !suffix.is_empty() && (before.is_empty() || before.ends_with("::")),
        None => false,
    }
}

impl ScriptReply {
    /// The value for a call with these arguments.
    ///
    /// # Errors
    ///
    /// [`FormulaError`] if the formula does not fit the arguments.
    pub fn value(&self, args: &[Value]) -> Result<Value, FormulaError> {
        match &self.value {
            ScriptValue::Literal(value) => Ok(value.clone()),
            ScriptValue::Formula(formula) => formula.compute(args),
        }
    }
}

impl Formula {
    fn compute(&self, args: &[Value]) -> Result<Value, FormulaError> {
        let mut sum = number(args, self.arg)?.times(self.mul)?.plus(self.add)?;
        if let Some(index) = self.plus_arg {
            sum = sum.plus(number(args, index)?)?;
        }
        Ok(match sum {
            Number::Int(sum) => Value::Int(sum),
            Number::Float(sum) => Value::F64(sum),
        })
    }
}

fn number(args: &[Value], index: usize) -> Result<Number, FormulaError> {
    let found = args.get(index).ok_or(FormulaError::NoArgument { index, count: args.len() })?;
    match (found.as_i64(), found.as_f64()) {
        (Some(number), _) => Ok(Number::Int(number)),
        (None, Some(number)) => Ok(Number::Float(number)),
        (None, None) => Err(FormulaError::NoNumber { index, found: found.type_name() }),
    }
}

impl Number {
    fn times(self, other: Number) -> Result<Number, FormulaError> {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => {
                a.checked_mul(b).map(Number::Int).ok_or(FormulaError::Overflow)
            }
            (a, b) => Ok(Number::Float(a.float() * b.float())),
        }
    }

    fn plus(self, other: Number) -> Result<Number, FormulaError> {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => {
                a.checked_add(b).map(Number::Int).ok_or(FormulaError::Overflow)
            }
            (a, b) => Ok(Number::Float(a.float() + b.float())),
        }
    }

    fn float(self) -> f64 {
        match self {
            Number::Int(number) => number as f64,
            Number::Float(number) => number,
        }
    }
}

fn handler(name: &str, replies: &Json) -> Result<ScriptHandler, ScriptError> {
    let list = replies.as_array().filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| ScriptError::Shape(format!("{name:?} has no list of replies")))?;
    let replies = list.iter().enumerate().map(|(at, json)| {
        reply(json).map_err(|problem| ScriptError::Reply { handler: name.to_owned(), at, problem })
    });
    Ok(ScriptHandler { suffix: name.to_owned(), replies: replies.collect::<Result<_, _>>()?, calls: 0 })
}

fn reply(json: &Json) -> Result<ScriptReply, ReplyProblem> {
    let fields = json.as_object().ok_or_else(|| ReplyProblem::NoObject(json.to_string()))?;
    if let Some(key) = fields.keys().find(|key| !REPLY_KEYS.contains(&key.as_str())) {
        return Err(ReplyProblem::UnknownKey { key: key.clone() });
    }
    let present = |name| fields.get(name).filter(|json| !json.is_null());
    let action = present("do").and_then(Json::as_str).and_then(ScriptAction::parse);
    let found = || fields.get("do").unwrap_or(&Json::Null).to_string();
    let after_ms = present("after_ms").map(|json| {
        let expected = "a whole number of milliseconds from 0";
        json.as_u64().ok_or_else(|| ReplyProblem::Field {
            field: "after_ms",
            found: json.to_string(),
            expected,
        })
    });
    let error = present("error").map(|json| {
        json.as_str().map(str::to_owned).ok_or_else(|| ReplyProblem::Field {
            field: "error",
            found: json.to_string(),
            expected: "a text",
        })
    });
    let value = match present("value") {
        None => ScriptValue::Literal(Value::Nil),
        Some(Json::Object(fields)) if fields.contains_key("arg") => ScriptValue::Formula(formula(fields)?),
        Some(json) => ScriptValue::Literal(from_tagged(json)?),
    };
    Ok(ScriptReply {
        action: action.ok_or_else(|| ReplyProblem::Action(found()))?,
        value,
        after_ms: after_ms.transpose()?,
        error: error.transpose()?.unwrap_or_else(|| "the script throws".to_owned()),
    })
}

fn formula(fields: &Map<String, Json>) -> Result<Formula, ReplyProblem> {
    if let Some(key) = fields.keys().find(|key| !FORMULA_KEYS.contains(&key.as_str())) {
        return Err(ReplyProblem::UnknownFormulaKey { key: key.clone() });
    }
    let index = |field| {
        let Some(json) = fields.get(field).filter(|json| !json.is_null()) else { return Ok(None) };
        let index = json.as_u64().and_then(|index| usize::try_from(index).ok());
        let expected = "the number of an argument, counted from 0";
        index.map(Some).ok_or_else(|| ReplyProblem::Field { field, found: json.to_string(), expected })
    };
    let factor = |field, default| {
        let Some(json) = fields.get(field).filter(|json| !json.is_null()) else { return Ok(default) };
        match from_tagged(json)? {
            Value::Int(number) => Ok(Number::Int(number)),
            Value::F64(number) => Ok(Number::Float(number)),
            _ => Err(ReplyProblem::Field { field, found: json.to_string(), expected: "a number" }),
        }
    };
    Ok(Formula {
        arg: index("arg")?.unwrap_or(0),
        mul: factor("mul", Number::Int(1))?,
        add: factor("add", Number::Int(0))?,
        plus_arg: index("plus_arg")?,
    })
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
