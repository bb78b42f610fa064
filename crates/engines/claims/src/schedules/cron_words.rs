//! A schedule's times in words, for people who look at it: `at 02:30, from Monday to Friday (Europe/Berlin)`.
//!
//! Works on the text and expands nothing, so the cost is that of reading it. A part that has no simple wording is
//! quoted as it is written.

const WEEKDAYS: [&str; 8] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const NICKNAMES: &[(&str, &str)] = &[
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * SUN"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];
/// Times of day that are written out; more are given as lists of minutes and hours.
const TIMES_MAX: usize = 6;

/// Returns the expression in words, with its time zone in brackets.
pub fn cron_words(cron: &str, zone: &str) -> String {
    let text = cron.trim();
    let known = NICKNAMES.iter().find(|(nickname, _)| nickname.eq_ignore_ascii_case(text));
    let text = known.map_or(text, |(_, expression)| expression);
    if let Some((nickname, interval)) = text.split_once(char::is_whitespace)
        && nickname.eq_ignore_ascii_case("@every")
    {
        return format!("every {}, counted from the beginning of 1970 (UTC)", interval.trim());
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    match fields[..] {
        [minute, hour, day, month, weekday] => {
            let mut words = clock(minute, hour);
            words += &days(day, weekday);
            if !is_any(month) {
                words += &format!(" in {}", named(month, &MONTHS, 1));
            }
            format!("{words} ({zone})")
        }
        _ => format!("{text} ({zone})"),
    }
}

fn is_any(field: &str) -> bool {
    matches!(field, "*" | "?")
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns N of `*/N`.
fn step(field: &str) -> Option<u32> {
    number(field.strip_prefix("*/")?)
}

/// Returns the numbers of a list without ranges.
fn numbers(field: &str) -> Option<Vec<u32>> {
    field.split(',').map(number).collect()
}

fn clock(minute: &str, hour: &str) -> String {
    if let (Some(minutes), Some(hours)) = (numbers(minute), numbers(hour))
        && minutes.len() * hours.len() <= TIMES_MAX
    {
        let times = hours.iter().flat_map(|hour| minutes.iter().map(move |minute| (hour, minute)));
        let times: Vec<String> = times.map(|(hour, minute)| format!("{hour:02}:{minute:02}")).collect();
        return format!("at {}", listed(&times));
    }
    match (minute, hour) {
        ("*", "*") => "every minute".to_owned(),
        ("0", "*") => "every hour".to_owned(),
        (minute, "*") => match (step(minute), number(minute)) {
            (Some(step), _) => format!("every {step} minutes"),
            (None, Some(_)) => format!("every hour at minute {minute}"),
            (None, None) => format!("every hour at minutes {minute}"),
        },
        (minute, hour) => {
            let minutes = match (minute, step(minute)) {
                ("*", _) => "every minute".to_owned(),
                (_, Some(step)) => format!("every {step} minutes"),
                (_, None) if number(minute).is_some() => format!("at minute {minute}"),
                (_, None) => format!("at minutes {minute}"),
            };
            match step(hour) {
                Some(step) => format!("{minutes} of every {step} hours from midnight"),
                None if number(hour).is_some() => format!("{minutes} of hour {hour}"),
                None => format!("{minutes} of hours {hour}"),
            }
        }
    }
}

/// Where both are given, either is enough.
fn days(day: &str, weekday: &str) -> String {
    let of_month = match number(day) {
        Some(day) => format!("on day {day} of the month"),
        None => format!("on days {day} of the month"),
    };
    let of_week = match weekday.split_once('-') {
        Some((from, to)) if !weekday.contains([',', '/']) => {
            format!("from {} to {}", named(from, &WEEKDAYS, 0), named(to, &WEEKDAYS, 0))
        }
        _ => format!("on {}", named(weekday, &WEEKDAYS, 0)),
    };
    match (is_any(day), is_any(weekday)) {
        (true, true) => String::new(),
        (false, true) => format!(", {of_month}"),
        (true, false) => format!(", {of_week}"),
        (false, false) => format!(", {of_month} or {of_week}"),
    }
}

/// Replaces the numbers and short names of a list by names; `first` is the number of the first name.
fn named(field: &str, names: &[&str], first: usize) -> String {
    let name = |part: &str| -> String {
        let by_number = number(part).and_then(|number| names.get((number as usize).checked_sub(first)?));
        let short =
            |name: &&&str| part.len() == 3 && name.get(..3).is_some_and(|of| of.eq_ignore_ascii_case(part));
        by_number.or_else(|| names.iter().find(short)).map_or(part, |name| name).to_owned()
    };
    let part = |part: &str| match part.split_once('-') {
        Some((from, to)) => format!("{} to {}", name(from), name(to)),
        None => name(part),
    };
    listed(&field.split(',').map(part).collect::<Vec<_>>())
}

fn listed(parts: &[String]) -> String {
    match parts {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => parts.join(""),
    }
}

#[cfg(test)]
mod tests {
    use super::cron_words;

    #[test]
    fn expressions_are_said_in_words_with_their_zone() {
        for (cron, words) in [
            ("30 2 * * 1-5", "at 02:30, from Monday to Friday"),
            ("0 8,20 * * *", "at 08:00 and 20:00"),
            ("* * * * *", "every minute"),
            ("*/15 * * * *", "every 15 minutes"),
            ("@hourly", "every hour"),
            ("5 * * * *", "every hour at minute 5"),
            ("1,2-4 * * * *", "every hour at minutes 1,2-4"),
            ("0 */4 * * *", "at minute 0 of every 4 hours from midnight"),
            ("*/5 9-17 * * MON,wed", "every 5 minutes of hours 9-17, on Monday and Wednesday"),
            ("@weekly", "at 00:00, on Sunday"),
            ("0 0 7 * 7", "at 00:00, on day 7 of the month or on Sunday"),
            ("@yearly", "at 00:00, on day 1 of the month in January"),
            ("0 12 1,15 JUN-8 *", "at 12:00, on days 1,15 of the month in June to August"),
            ("0 0 L * *", "at 00:00, on days L of the month"),
            ("0 0 * * 5#2", "at 00:00, on 5#2"),
            ("what ever", "what ever"),
        ] {
            assert_eq!(cron_words(cron, "Europe/Berlin"), format!("{words} (Europe/Berlin)"), "{cron}");
        }
        assert_eq!(
            cron_words("@EVERY 1h30m", "Europe/Berlin"),
            "every 1h30m, counted from the beginning of 1970 (UTC)"
        );
    }

    #[test]
    fn hostile_text_is_quoted_and_not_expanded() {
        assert_eq!(cron_words("1-100000000 * * * *", "UTC"), "every hour at minutes 1-100000000 (UTC)");
        let long = "0,".repeat(100_000);
        assert!(cron_words(&format!("{long}0 {long}0 * * *"), "UTC").len() < 500_000);
        for text in ["", "-", "* * * *", "99999999999 é-ü * * -", "*/0 */ * * ,"] {
            cron_words(text, "");
        }
    }
}
