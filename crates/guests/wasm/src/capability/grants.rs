//! The capabilities that a host grants its programs, and the dispatch from an effect to the capability that answers it.

use std::fmt;
use std::sync::Arc;

use super::call::{CapabilityAnswer, CapabilityCall, CapabilityError};
use super::console::{Input, Output};
use super::environment::Environment;
use super::folder::Folder;
use super::grant::Grant;
use super::port::{BusPort, StorePort};
use super::random_source::RandomSource;
use super::{bus, env, fs, input_output, log, random, store, time};
use crate::host::outcome::RunNumber;

/// The capabilities that programs may use. Nothing is granted unless it is named:
///
/// ```
/// use millrace_wasm::capability::{Environment, Grants, RandomSource};
///
/// let grants = Grants::none().time().random(RandomSource::seeded(7)).env(Environment::of_process(|name| name ==
/// "LANG"));
/// ```
#[derive(Clone, Default)]
pub struct Grants {
    time: bool,
    log: bool,
    random: Option<Arc<RandomSource>>,
    env: Option<Arc<Environment>>,
    fs: Option<Arc<Folder>>,
    input: Option<Arc<Input>>,
    output: Option<Arc<Output>>,
    bus: Option<Arc<dyn BusPort>>,
    store: Option<Arc<dyn StorePort>>,
}

impl Grants {
    pub fn none() -> Grants {
        Grants::default()
    }

    #[must_use]
    pub fn time(mut self) -> Grants {
        self.time = true;
        self
    }

    #[must_use]
    pub fn log(mut self) -> Grants {
        self.log = true;
        self
    }

    #[must_use]
    pub fn random(mut self, source: RandomSource) -> Grants {
        self.random = Some(Arc::new(source));
        self
    }

    #[must_use]
    pub fn env(mut self, variables: Environment) -> Grants {
        self.env = Some(Arc::new(variables));
        self
    }

    #[must_use]
    pub fn fs(mut self, folder: Folder) -> Grants {
        self.fs = Some(Arc::new(folder));
        self
    }

    #[must_use]
    pub fn input(mut self, input: Input) -> Grants {
        self.input = Some(Arc::new(input));
        self
    }

    #[must_use]
    pub fn output(mut self, output: Output) -> Grants {
        self.output = Some(Arc::new(output));
        self
    }

    #[must_use]
    pub fn bus(mut self, bus: Arc<dyn BusPort>) -> Grants {
        self.bus = Some(bus);
        self
    }

    #[must_use]
    pub fn store(mut self, store: Arc<dyn StorePort>) -> Grants {
        self.store = Some(store);
        self
    }

    pub fn has(&self, grant: Grant) -> bool {
        match grant {
            Grant::Time => self.time,
            Grant::Random => self.random.is_some(),
            Grant::Log => self.log,
            Grant::Env => self.env.is_some(),
            Grant::Fs => self.fs.is_some(),
            Grant::Input => self.input.is_some(),
            Grant::Output => self.output.is_some(),
            Grant::Bus => self.bus.is_some(),
            Grant::Store => self.store.is_some(),
        }
    }

    /// Gives back what a run that has ended holds in the bus and the store. The host's observer calls it.
    pub fn release(&self, run: RunNumber) {
        if let Some(bus) = &self.bus {
            bus.release(run);
        }
        if let Some(store) = &self.store {
            store.release(run);
        }
    }

    /// Answers an effect of this capability.
    ///
    /// # Errors
    ///
    /// [`CapabilityError`] if the capability is not granted, does not know the operation, or cannot read its arguments:
    /// the run fails with that text.
    pub fn call(
        &self,
        grant: Grant,
        run: RunNumber,
        call: &CapabilityCall<'_>,
    ) -> Result<CapabilityAnswer, CapabilityError> {
        match grant {
            Grant::Time if self.time => time::call(call),
            Grant::Log if self.log => log::call(call),
            Grant::Time | Grant::Log => Err(CapabilityError::denied(grant, call.label)),
            Grant::Random => random::call(granted(&self.random, grant, call)?, call),
            Grant::Env => env::call(granted(&self.env, grant, call)?, call),
            Grant::Fs => fs::call(granted(&self.fs, grant, call)?, call),
            Grant::Input => {
                input_output::input(granted(&self.input, grant, call)?, self.output.as_ref(), call)
            }
            Grant::Output => input_output::output(granted(&self.output, grant, call)?, call),
            Grant::Bus => bus::call(&**granted(&self.bus, grant, call)?, run, call),
            Grant::Store => store::call(&**granted(&self.store, grant, call)?, run, call),
        }
    }
}

fn granted<'a, T: ?Sized>(
    held: &'a Option<Arc<T>>,
    grant: Grant,
    call: &CapabilityCall<'_>,
) -> Result<&'a Arc<T>, CapabilityError> {
    held.as_ref().ok_or_else(|| CapabilityError::denied(grant, call.label))
}

impl fmt::Debug for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let granted = Grant::ALL.into_iter().filter(|grant| self.has(*grant));
        f.debug_set().entries(granted.map(Grant::as_str)).finish()
    }
}
