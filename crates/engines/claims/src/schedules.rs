//! Schedules: their times, and that each fire happens once.

pub(crate) mod cron;
pub(crate) mod cron_words;
pub(crate) mod schedule;
