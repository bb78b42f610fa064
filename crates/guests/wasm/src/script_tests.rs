//! Scripts: what they accept, and the replies they make.

use super::*;

fn script(handlers: &str) -> Script {
    Script::parse(&format!(r#"{{"handlers":{handlers}}}"#)).unwrap()
}

fn value_of(reply: &str, args: &[Value]) -> Result<Value, FormulaError> {
    let mut script = script(&format!(r#"{{"E::o":[{reply}]}}"#));
    script.next_reply(0).unwrap().value(args)
}

#[test]
fn replies_are_used_in_order_and_the_last_repeats() {
    let mut script = script(r#"{"Ask::number":[{"do":"resume","value":1},{"do":"end","after_ms":5}]}"#);
    let at = script.find("src::m::Ask.number").unwrap();
    let first = script.next_reply(at).unwrap().clone();
    assert_eq!(
        (first.action, first.value(&[]), first.after_ms),
        (ScriptAction::Resume, Ok(Value::Int(1)), None)
    );
    for _ in 0..2 {
        let next = script.next_reply(at).unwrap();
        assert_eq!(
            (next.action, next.value(&[]), next.after_ms),
            (ScriptAction::End, Ok(Value::Nil), Some(5))
        );
    }
}

#[test]
fn a_handler_is_found_by_the_end_of_the_label_at_a_segment() {
    let script = script(r#"{"Ask::number":[{"do":"tail"}],"b::Ask::number":[{"do":"tail"}]}"#);
    let name = |label| script.find(label).map(|at| script.names().nth(at).unwrap().to_owned());
    assert_eq!(name("src::a::Ask.number").as_deref(), Some("Ask::number"));
    assert_eq!(name("src::b::Ask.number").as_deref(), Some("b::Ask::number"), "the longest wins");
    assert_eq!(name("src::b::Task.number"), None);
    assert_eq!(name("Ask.numbers"), None);
    assert_eq!(short_label("src::b::Ask.number"), "Ask::number");
    assert_eq!(short_label("bare"), "bare");
}

#[test]
fn formulas_compute_with_integers_and_floats() {
    let args = [Value::Int(20), Value::Int(3), Value::F64(0.5), "x".into()];
    let value = |reply: &str| value_of(reply, &args);
    assert_eq!(value(r#"{"do":"resume","value":{"arg":0,"mul":2}}"#), Ok(Value::Int(40)));
    assert_eq!(value(r#"{"do":"resume","value":{"arg":0,"add":-1,"plus_arg":1}}"#), Ok(Value::Int(22)));
    assert_eq!(value(r#"{"do":"resume","value":{"arg":2,"mul":4,"add":1}}"#), Ok(Value::F64(3.0)));
    assert_eq!(value(r#"{"do":"resume","value":{"arg":0,"mul":0.5}}"#), Ok(Value::F64(10.0)));
    assert_eq!(
        value(r#"{"do":"resume","value":{"arg":9}}"#),
        Err(FormulaError::NoArgument { index: 9, count: 4 })
    );
    assert_eq!(
        value(r#"{"do":"resume","value":{"arg":3}}"#),
        Err(FormulaError::NoNumber { index: 3, found: "string" })
    );
    assert_eq!(
        value(r#"{"do":"resume","value":{"arg":0,"mul":9223372036854775807}}"#),
        Err(FormulaError::Overflow)
    );
}

#[test]
fn literals_are_typed() {
    let value = |text: &str| value_of(&format!(r#"{{"do":"resume","value":{text}}}"#), &[]).unwrap();
    assert_eq!(value(r#"{"i64":"-9223372036854775808"}"#), Value::Int(i64::MIN));
    assert_eq!(value(r#"{"f64":1}"#), Value::F64(1.0));
    assert_eq!(value("null"), Value::Nil);
    assert_eq!(value(r#"{"ok":true,"value":{"f64":1}}"#).get("value"), Some(&Value::F64(1.0)));
}

#[test]
fn bad_scripts_say_which_reply_is_wrong() {
    for (script, parts) in [
        ("{", vec!["not valid JSON"]),
        ("[]", vec!["handlers"]),
        (r#"{"handlers":{"E::o":[]}}"#, vec!["E::o", "no list of replies"]),
        (r#"{"handlers":{"E::o":[1]}}"#, vec!["E::o, reply 0", "object"]),
        (
            r#"{"handlers":{"E::o":[{"do":"tail"},{"do":"go"}]}}"#,
            vec!["E::o, reply 1", "\"go\"", "\"throw\""],
        ),
        (r#"{"handlers":{"E::o":[{}]}}"#, vec!["\"do\" is null"]),
        (r#"{"handlers":{"E::o":[{"do":"tail","after_ms":-1}]}}"#, vec!["after_ms", "-1"]),
        (r#"{"handlers":{"E::o":[{"do":"throw","error":5}]}}"#, vec!["error", "5", "text"]),
        (r#"{"handlers":{"E::o":[{"do":"tail","value":{"i64":"x"}}]}}"#, vec!["64 bits"]),
        (r#"{"handlers":{"E::o":[{"do":"tail","value":{"arg":"x"}}]}}"#, vec!["arg", "counted from 0"]),
        (r#"{"handlers":{"E::o":[{"do":"tail","value":{"arg":0,"mul":"x"}}]}}"#, vec!["mul", "a number"]),
        (
            r#"{"handlers":{"E::o":[{"do":"resume","vlaue":7}]}}"#,
            vec!["E::o, reply 0", "\"vlaue\"", "\"value\"", "\"after_ms\""],
        ),
        (
            r#"{"handlers":{"E::o":[{"do":"tail","value":{"arg":0,"foo":1}}]}}"#,
            vec!["\"foo\"", "\"plus_arg\""],
        ),
        (
            r#"{"handlers":{"E::o":[{"do":"tail","value":18446744073709551616}]}}"#,
            vec!["18446744073709551616", "f64"],
        ),
    ] {
        let error = Script::parse(script).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{part:?} is not in {error:?}");
        }
    }
}
