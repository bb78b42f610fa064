//! Ages and numbers: parsing what people write, and formatting for people.

use crate::failure::Failure;

const UNITS: [(char, &str, u64); 4] =
    [('d', "day", 86_400_000), ('h', "hour", 3_600_000), ('m', "minute", 60_000), ('s', "second", 1000)];

/// Parses an age: `7d` is seven days, returned in milliseconds and in words.
pub(super) fn age(text: &str) -> Result<(u64, String), Failure> {
    let wrong =
        || Failure::Usage(format!("--before is {text:?}: it must be a number and d, h, m or s, as in 7d"));
    let unit = text.chars().last().ok_or_else(wrong)?;
    let (_, name, unit_ms) = UNITS.into_iter().find(|(letter, _, _)| *letter == unit).ok_or_else(wrong)?;
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    let ms = number.checked_mul(unit_ms).ok_or_else(wrong)?;
    let plural = if number == 1 { "" } else { "s" };
    Ok((ms, format!("{number} {name}{plural}")))
}

/// Formats an age, such as `2s ago` or `10m ago`.
pub(super) fn ago(ms: u64) -> String {
    let (letter, _, unit_ms) =
        UNITS.into_iter().find(|(_, _, unit_ms)| ms >= *unit_ms).unwrap_or(('s', "second", 1000));
    format!("{}{letter} ago", ms / unit_ms)
}

/// Formats a number with separators, such as `1,234`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a time in UTC to the second, such as `2026-02-11 10:00:00`.
pub(super) fn second(at: millrace_model::Timestamp) -> String {
    at.to_string().get(..19).unwrap_or_default().replace('T', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_read_and_shown() {
        assert_eq!(age("7d").unwrap(), (604_800_000, "7 days".to_owned()));
        assert_eq!(age("1h").unwrap(), (3_600_000, "1 hour".to_owned()));
        for wrong in ["", "7", "d", "-1d", "7w", "99999999999999999999d", "18446744073709551615d", "ü"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            [ago(0), ago(2000), ago(600_000), ago(90_000_000)],
            ["0s ago", "2s ago", "10m ago", "1d ago"]
        );
        assert_eq!([grouped(7), grouped(1234), grouped(1_000_000)], ["7", "1,234", "1,000,000"]);
    }
}
