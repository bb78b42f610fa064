//! The checks at the end of a soak, and its report.

use std::fmt;

use serde::Serialize;

use super::memory::{JUDGED_FROM, TOLERANCE};
use super::{Ran, SoakOptions, SoakReport, SoakState, value};
use crate::bus::server::BenchServer;
use crate::error::BenchError;

#[derive(Clone, Debug, Serialize)]
pub struct SoakCheck {
    pub what: &'static str,
    pub passed: bool,
    pub found: String,
}

pub(super) fn conclude(
    options: &SoakOptions,
    server: BenchServer,
    shared: &SoakState,
    ran: &Ran,
) -> Result<SoakReport, BenchError> {
    let examined = server.stop_and_examine()?;
    let counts = &shared.counts;
    let (lag, inflight) = ran.left;
    let stranded = &ran.stranded;
    let mut checks = vec![
        SoakCheck {
            what: "every confirmed event was acknowledged or dead-lettered in every group",
            passed: stranded.count == 0,
            found: format!("{} stranded {}", stranded.count, stranded.some.join(", ")).trim().to_owned(),
        },
        SoakCheck {
            what: "lag returns to zero",
            passed: ran.drained && lag == 0 && inflight == 0,
            found: format!("lag {lag}, in flight {inflight}"),
        },
        SoakCheck {
            what: "retention took nothing from a group",
            passed: ran.skipped == 0,
            found: format!("{} skipped", ran.skipped),
        },
        SoakCheck {
            what: "the server stops when it is told to",
            passed: examined.stopped_well,
            found: if examined.stopped_well { "exit 0" } else { "it failed" }.to_owned(),
        },
        SoakCheck {
            what: "doctor finds a whole store",
            passed: examined.healthy,
            found: examined.told.clone(),
        },
    ];
    checks.push(flatness(ran));
    Ok(SoakReport {
        seed: options.seed,
        minutes: options.minutes,
        peak_per_second: ran.peak_per_second,
        published: value(&counts.published),
        published_per_second: ran.published_paced as f64 / ran.paced.as_secs_f64(),
        handled: value(&counts.handled),
        nacks: value(&counts.nacks),
        disconnects: value(&counts.disconnects),
        slow_spells: value(&counts.slow_spells),
        redelivered: ran.redelivered,
        dead_letters: ran.dead_letters,
        late_acks: value(&counts.late_acks),
        lag_max: ran.lag_max,
        memory_mb_first: ran.memory.first(),
        memory_mb_last: ran.memory.last(),
        memory_mb_max: ran.memory.max(),
        memory_mb_per_minute: ran.memory.megabytes_per_minute(),
        doctor: examined.told,
        checks,
    })
}

fn flatness(ran: &Ran) -> SoakCheck {
    let what = "memory is flat";
    let slope = ran.memory.megabytes_per_minute();
    match ran.memory.thirds() {
        Some((second, last)) if ran.paced >= JUDGED_FROM => SoakCheck {
            what,
            passed: ran.memory.is_flat(),
            found: format!(
                "second third {second:.1} MB, last third {last:.1} MB (at most {:.0} % more), slope {slope:.3} MB/min",
                TOLERANCE * 100.0
            ),
        },
        _ => SoakCheck {
            what,
            passed: true,
            found: format!("not judged: the run is shorter than {} s", JUDGED_FROM.as_secs()),
        },
    }
}

impl fmt::Display for SoakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SoakReport { seed, minutes, published, handled, nacks, disconnects, .. } = self;
        writeln!(f, "soak: {minutes} minutes, seed {seed}")?;
        writeln!(
            f,
            "peak {:.0} events/s to every group; then {:.0}/s, {published} events, {handled} handled in groups",
            self.peak_per_second, self.published_per_second
        )?;
        writeln!(
            f,
            "{nacks} refused, {disconnects} disconnects, {} slow spells, {} redelivered, {} dead letters, {} late acks, \
             highest lag seen {}",
            self.slow_spells, self.redelivered, self.dead_letters, self.late_acks, self.lag_max
        )?;
        writeln!(
            f,
            "memory: {:.1} MB at first, {:.1} MB at last, {:.1} MB at most, slope {:.3} MB/min",
            self.memory_mb_first, self.memory_mb_last, self.memory_mb_max, self.memory_mb_per_minute
        )?;
        for SoakCheck { what, passed, found } in &self.checks {
            let word = if *passed { "ok    " } else { "FAILED" };
            writeln!(f, "{word}  {what}: {found}")?;
        }
        Ok(())
    }
}
