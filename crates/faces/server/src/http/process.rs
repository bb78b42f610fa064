//! The figures that every process has under the same names (`process_*`), read from `/proc`. A system without `/proc`
//! has none of them.

use std::fs;

use crate::http::prometheus::Page;

/// Ticks per second in `/proc`: the kernel converts to this number on every architecture that Rust's server targets
/// have, whatever its own timer does.
const TICKS_PER_SECOND: f64 = 100.0;

pub(crate) fn write(page: &mut Page) {
    if let Ok(stat) = fs::read_to_string("/proc/self/stat")
        && let Some(times) = Times::parse(&stat)
    {
        let help = "Processor time of this process, in user mode and in the kernel.";
        page.process("counter", "cpu_seconds_total", help, times.processor_ticks as f64 / TICKS_PER_SECOND);
        page.process("gauge", "threads", "Threads of this process.", times.threads);
        let boot = fs::read_to_string("/proc/stat").ok().and_then(|stat| number(&stat, "btime "));
        if let Some(boot) = boot {
            let started = boot as f64 + times.started_ticks as f64 / TICKS_PER_SECOND;
            page.process("gauge", "start_time_seconds", "When this process started, in Unix time.", started);
        }
    }
    if let Ok(status) = fs::read_to_string("/proc/self/status") {
        for (name, line, help) in [
            ("resident_memory_bytes", "VmRSS:", "Memory of this process that is in RAM."),
            ("virtual_memory_bytes", "VmSize:", "Address space of this process."),
        ] {
            if let Some(kib) = number(&status, line) {
                page.process("gauge", name, help, kib * 1024);
            }
        }
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // The folder that is being read is open, too.
        let open = open.count().saturating_sub(1);
        page.process("gauge", "open_fds", "Open file descriptors of this process.", open);
    }
    let limits = fs::read_to_string("/proc/self/limits").ok();
    if let Some(max) = limits.and_then(|limits| number(&limits, "Max open files")) {
        page.process("gauge", "max_fds", "Most file descriptors that this process may have open.", max);
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Times {
    processor_ticks: u64,
    threads: u64,
    started_ticks: u64,
}

impl Times {
    /// Reads the fields 14, 15, 20 and 22 of proc(5). The second field, the name, may hold spaces and parentheses.
    fn parse(stat: &str) -> Option<Times> {
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let processor_ticks = field(14)?.checked_add(field(15)?)?;
        Some(Times { processor_ticks, threads: field(20)?, started_ticks: field(22)? })
    }
}

/// The first number in the line that begins with `start`.
fn number(text: &str, start: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(start))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_move_the_fields() {
        let stat = "7 (mill) race (x) S 1 7 7 0 -1 4194560 900 0 0 0 250 50 0 0 20 0 9 0 12345 1000 20 18446744073709551615";
        let expected = Times { processor_ticks: 300, threads: 9, started_ticks: 12_345 };
        assert_eq!(Times::parse(stat), Some(expected));
        assert_eq!(Times::parse("7 (x) S 1"), None);
    }

    #[test]
    fn an_unlimited_number_is_left_out() {
        assert_eq!(number("Max open files            1024  4096  files\n", "Max open files"), Some(1024));
        assert_eq!(number("Max open files            unlimited  unlimited  files\n", "Max open files"), None);
    }
}
