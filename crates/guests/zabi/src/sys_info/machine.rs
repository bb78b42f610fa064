//! Facts about the machine, as the operating system reports them; `None` where it does not.

/// Sizes of the machine's memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) total_bytes: u64,
    pub(super) available_bytes: u64,
}

impl Memory {
    pub(super) fn used_thousandths(self) -> u32 {
        let used = u128::from(self.total_bytes.saturating_sub(self.available_bytes)) * 1000;
        u32::try_from(used / u128::from(self.total_bytes.max(1))).unwrap_or(1000)
    }
}

pub(super) fn os() -> Option<String> {
    Some(std::env::consts::OS.to_owned())
}

pub(super) fn architecture() -> Option<String> {
    Some(std::env::consts::ARCH.to_owned())
}

pub(super) fn hostname() -> Option<String> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Some(name).filter(|name| !name.is_empty())
}

/// The name of the processor.
pub(super) fn model() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

pub(super) fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

pub(super) fn page_bytes() -> u32 {
    u32::try_from(rustix::param::page_size()).unwrap_or(4096)
}

/// The load averages of 1, 5 and 15 minutes in thousandths.
pub(super) fn load() -> Option<[u32; 3]> {
    parse_load(&std::fs::read_to_string("/proc/loadavg").ok()?)
}

pub(super) fn memory() -> Option<Memory> {
    parse_memory(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse_load(text: &str) -> Option<[u32; 3]> {
    let mut words = text.split_whitespace().map(|word| word.parse::<f64>().ok());
    let mut next = || Some((words.next()?? * 1000.0) as u32);
    Some([next()?, next()?, next()?])
}

fn parse_memory(text: &str) -> Option<Memory> {
    let bytes_of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim_start_matches(':').split_whitespace().next()?.parse().ok()?;
        Some(kib * 1024)
    };
    Some(Memory { total_bytes: bytes_of("MemTotal")?, available_bytes: bytes_of("MemAvailable")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_linux_are_read() {
        assert_eq!(parse_load("0.25 1.5 12.00 1/234 5\n"), Some([250, 1500, 12_000]));
        assert_eq!(parse_load("0.25 x"), None);
        let memory = parse_memory("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  250 kB\n").unwrap();
        assert_eq!((memory.total_bytes, memory.used_thousandths()), (1_024_000, 750));
        assert_eq!(parse_memory("MemTotal: 1 kB\n"), None);
    }
}
