//! The parameters of a scenario: a fresh store, its raw engine, a folder for servers, and the collector of figures.

use std::path::Path;
use std::time::{Duration, Instant};

use super::EngineOptions;
use super::payloads::Payloads;
use super::place::{BenchPlace, EngineKind};
use crate::BenchOptions;
use crate::aim::Aim;
use crate::bus::server::{BenchServer, ServedStore};
use crate::error::BenchError;
use crate::figures::{Latencies, Rounds};
use crate::probe::{SLICES, slice_time};
use crate::report::Collector;

/// Raw requests of a slice, or fewer if they take longer than a slice of load.
const PUTS_PER_SLICE: usize = 20;
const PUTS_PER_SLICE_MIN: usize = 3;
/// How often a server is asked what it does.
const LOOK: Duration = Duration::from_millis(5);
/// A server that has not come so far after this time never will.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct EngineStage<'a> {
    pub(crate) kind: EngineKind,
    /// Engine and scenario, as the report names them.
    pub(crate) name: String,
    pub(crate) place: &'a mut BenchPlace,
    /// For the folders of servers, which hold their copies.
    pub(crate) folder: &'a Path,
    pub(crate) options: &'a BenchOptions,
    pub(crate) engine_options: &'a EngineOptions,
    pub(crate) out: &'a mut Collector,
    pub(crate) payloads: &'a mut Payloads,
    pub(crate) probe: Rounds,
}

impl EngineStage<'_> {
    /// Starts a server on the store of this scenario, in a folder of its own.
    pub(crate) fn server(&self, name: &str, flags: &[String]) -> Result<BenchServer, BenchError> {
        let folder = self.folder.join(name);
        std::fs::create_dir_all(&folder)
            .map_err(|source| BenchError::io("making a folder for a server", source))?;
        let store = ServedStore { url: self.place.url.clone(), flags: flags.to_vec() };
        BenchServer::on_store(&self.options.program, &folder, store)
    }

    /// Starts the only server of this scenario, and waits until it serves everything.
    pub(crate) fn leader(&self, name: &str, flags: &[String]) -> Result<BenchServer, BenchError> {
        let server = self.server(name, flags)?;
        if self.kind.is_shared() {
            self.wait_for("a server that leads", || Ok(server.role().as_deref() == Some("leader")))?;
        }
        Ok(server)
    }

    /// Returns the number of commits so far that reached the engine.
    pub(crate) fn records(&self, server: &BenchServer) -> Result<f64, BenchError> {
        match self.kind.is_shared() {
            true => server.metric("millrace_store_position"),
            false => server.commits(),
        }
    }

    pub(crate) fn wait_for(
        &self,
        what: &str,
        mut look: impl FnMut() -> Result<bool, BenchError>,
    ) -> Result<(), BenchError> {
        let began = Instant::now();
        while !look()? {
            self.options.go_on()?;
            if began.elapsed() > PATIENCE {
                return Err(BenchError::Unexpected(format!("waited in vain for {what}")));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Measures the raw engine for a moment.
    pub(crate) fn probe_slice(&mut self) -> Result<(), BenchError> {
        self.options.go_on()?;
        let (began, most) = (Instant::now(), slice_time(self.options));
        let mut latencies = Latencies::default();
        while latencies.len() < PUTS_PER_SLICE_MIN
            || latencies.len() < PUTS_PER_SLICE && began.elapsed() < most
        {
            let payload = self.payloads.next();
            let sent = Instant::now();
            self.place.raw.put(payload.as_bytes())?;
            latencies.push(sent.elapsed());
        }
        self.probe.push(latencies.quantile_ms(0.5));
        Ok(())
    }

    /// Runs `load` for each slice, with a probe before each. The load is told when its slice ends. Returns the time
    /// spent in loads.
    pub(crate) fn slices(
        &mut self,
        mut load: impl FnMut(&mut Self, Instant) -> Result<(), BenchError>,
    ) -> Result<Duration, BenchError> {
        let mut busy = Duration::ZERO;
        for _ in 0..SLICES {
            self.probe_slice()?;
            let began = Instant::now();
            load(self, began + slice_time(self.options))?;
            busy += began.elapsed();
        }
        Ok(busy)
    }

    pub(crate) fn add(&mut self, figure: &str, unit: &'static str, value: f64) {
        self.out.add(&self.name, figure, unit, value);
    }

    pub(crate) fn add_with_aim(&mut self, figure: &str, unit: &'static str, value: f64, aim: Aim) {
        self.out.add(&self.name, figure, unit, value);
        self.out.set_aim(&self.name, figure, aim);
    }
}
