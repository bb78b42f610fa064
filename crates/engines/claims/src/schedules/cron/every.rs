//! `@every 90s`: fires at whole multiples of the interval since the beginning of 1970, UTC.
//!
//! The grid is fixed: sessions that start at different times agree on every fire, a restart moves nothing, and catching
//! up works as for cron because the missed fires are known.

use millrace_model::Timestamp;

const NICKNAME: &str = "@every";
/// A fire is a commit: anything more frequent is a loop and not a schedule.
const SHORTEST_MS: u64 = 1000;
const LONGEST_MS: u64 = 366 * 24 * 3600 * 1000;

#[derive(Clone, Copy, Debug)]
pub(super) struct Every {
    /// In milliseconds, between [`SHORTEST_MS`] and [`LONGEST_MS`].
    ms: u64,
}

/// Returns the text after `@every`, if `text` begins with it.
pub(super) fn interval_of(text: &str) -> Option<&str> {
    let text = text.trim();
    let (nickname, interval) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    nickname.eq_ignore_ascii_case(NICKNAME).then(|| interval.trim())
}

/// Why a text is no interval.
#[derive(Debug, thiserror::Error)]
pub(super) enum EveryError {
    #[error("{0:?} is not a duration: write numbers with the units d, h, m and s, as in 90s or 1h30m")]
    NoDuration(String),
    #[error("{0:?} is not between 1s and 366d")]
    OutOfRange(String),
}

impl Every {
    /// Parses numbers with units, whose values are added up: `90s`, `1h30m`.
    pub(super) fn parse(text: &str) -> Result<Every, EveryError> {
        let ms = total_ms(text).ok_or_else(|| EveryError::NoDuration(text.to_owned()))?;
        if !(SHORTEST_MS..=LONGEST_MS).contains(&ms) {
            return Err(EveryError::OutOfRange(text.to_owned()));
        }
        Ok(Every { ms })
    }

    pub(super) fn next(self, after: Timestamp) -> Option<Timestamp> {
        (after.0 / self.ms).checked_add(1)?.checked_mul(self.ms).map(Timestamp)
    }

    pub(super) fn latest(self, now: Timestamp) -> Timestamp {
        Timestamp(now.0 - now.0 % self.ms)
    }
}

fn total_ms(text: &str) -> Option<u64> {
    let (mut total, mut rest) = (0u64, text);
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let mut letters = rest[digits..].chars();
        let unit_ms = match letters.next()? {
            'd' => 24 * 3600 * 1000,
            'h' => 3600 * 1000,
            'm' => 60 * 1000,
            's' => 1000,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(unit_ms)?)?;
        rest = letters.as_str();
    }
    (!text.is_empty()).then_some(total)
}
