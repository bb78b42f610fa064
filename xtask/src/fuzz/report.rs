//! Parses the standard error of libFuzzer: statistics, each in a line that begins with `#`, and other lines.

const WRITTEN: &str = "Test unit written to ";

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// The statistics after the inputs of the corpus were run; `last` are the latest ones.
    first: Option<Statistics>,
    last: Option<Statistics>,
    /// The file with the input that failed.
    pub(super) finding: Option<String>,
    /// The lines that are no statistics; they say why an input failed.
    pub(super) others: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Statistics {
    inputs: u64,
    /// Places in the code that were reached.
    coverage: u64,
    /// Inputs that are kept, because each reaches code that the others do not.
    corpus: u64,
}

impl Report {
    /// Reads one line. Now and then a line with the progress is printed.
    pub(super) fn take(&mut self, line: &str) {
        let Some(statistics) = Statistics::parse(line) else {
            if let Some((_, path)) = line.split_once(WRITTEN) {
                self.finding = Some(path.trim().to_owned());
            }
            self.others.push(line.to_owned());
            return;
        };
        if line.contains("INITED") {
            self.first = Some(statistics);
        }
        if line.contains("pulse") {
            println!("  {} inputs, coverage {}", statistics.inputs, statistics.coverage);
        }
        self.last = Some(statistics);
    }

    pub(super) fn summary(&self) -> String {
        let (Some(first), Some(last)) = (self.first, self.last) else {
            return "libFuzzer told nothing".to_owned();
        };
        let Statistics { inputs, coverage, corpus } = last;
        format!(
            "{inputs} inputs, none failed; coverage {} -> {coverage}, {corpus} inputs kept",
            first.coverage
        )
    }
}

impl Statistics {
    /// Reads a line such as `#409 INITED cov: 464 ft: 1670 corp: 93/11844b exec/s: 0 rss: 27Mb`.
    fn parse(line: &str) -> Option<Statistics> {
        let mut words = line.strip_prefix('#')?.split_whitespace();
        let inputs = words.next()?.parse().ok()?;
        let number_after = |name: &str| -> Option<u64> {
            let mut words = line.split_whitespace().skip_while(|word| *word != name);
            words.nth(1)?.split('/').next()?.parse().ok()
        };
        Some(Statistics { inputs, coverage: number_after("cov:")?, corpus: number_after("corp:")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_summed_up_and_the_finding_is_named() {
        let mut report = Report::default();
        for line in [
            "INFO: Seed: 1",
            "#409\tINITED cov: 464 ft: 1670 corp: 93/11844b exec/s: 0 rss: 27Mb",
            "#412\tNEW    cov: 470 ft: 1678 corp: 94/11889b lim: 935 exec/s: 0 rss: 27Mb L: 45/935 MS: 3 -",
            "thread '<unnamed>' panicked at src/codec.rs:1:1:",
            "###### Recommended dictionary. ######",
            "artifact_prefix='a/'; Test unit written to a/crash-12",
        ] {
            report.take(line);
        }
        assert_eq!(report.summary(), "412 inputs, none failed; coverage 464 -> 470, 94 inputs kept");
        assert_eq!(report.finding.as_deref(), Some("a/crash-12"));
        assert_eq!(report.others.len(), 4);
    }
}
