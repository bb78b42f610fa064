//! The settings in the head of a recording. Together with the module and its answers they decide how runs go.

use serde_json::{Value as Json, json};

use super::RecordingError;
use crate::host::clock::Clock;
use crate::limits::{InstanceLimits, RunLimits};

/// The most memory that a recording may ask for: it may come from somebody else.
const MEMORY_BYTES_MAX: usize = 1 << 32;

/// How the runs of a recording were started. A replay gives its runs the same limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingSettings {
    pub clock: Clock,
    pub seed: Option<u64>,
    /// Steps of one tick: `max_internal_steps_per_tick`.
    pub budget: usize,
    pub instance: InstanceLimits,
    pub run: RunLimits,
}

impl RecordingSettings {
    /// The settings by the names that `millrace run` has for them. 0 stands for no limit, and for the default buffer.
    pub fn to_json(&self) -> Json {
        json!({
            "clock": match self.clock {
                Clock::Real => "real",
                Clock::Virtual { .. } => "virtual",
            },
            "system-start-ms": match self.clock {
                Clock::Real => None,
                Clock::Virtual { system_start_ms } => Some(system_start_ms),
            },
            "seed": self.seed,
            "budget": self.budget,
            "buffer": self.instance.buffer_bytes.unwrap_or(0),
            "run-memory-bytes-max": self.instance.memory_bytes_max,
            "table-elements-max": self.instance.table_elements_max,
            "start-fuel": self.instance.step_fuel_max,
            "start-ms-max": self.instance.step_wall_ms_max,
            "fuel": self.run.step_fuel_max,
            "step-ms-max": self.run.step_wall_ms_max,
            "wall-ms-max": self.run.wall_ms_max.unwrap_or(0),
        })
    }

    pub(super) fn from_head(head: &Json) -> Result<RecordingSettings, RecordingError> {
        let settings = head.get("settings").filter(|json| json.is_object()).ok_or(RecordingError::NoHead)?;
        let field = |name: &'static str| {
            let found = settings.get(name).unwrap_or(&Json::Null);
            (found, RecordingError::Setting { name, found: found.to_string() })
        };
        let number = |name| {
            let (found, error) = field(name);
            found.as_u64().ok_or(error)
        };
        let positive =
            |name| number(name).and_then(|found| if found > 0 { Ok(found) } else { Err(field(name).1) });
        let size = |name| usize::try_from(positive(name)?).map_err(|_| field(name).1);
        let clock = match field("clock") {
            (Json::String(clock), _) if clock == "real" => Clock::Real,
            (Json::String(clock), _) if clock == "virtual" => {
                Clock::Virtual { system_start_ms: number("system-start-ms")? }
            }
            (_, error) => return Err(error),
        };
        let seed = match field("seed") {
            (Json::Null, _) => None,
            (seed, error) => Some(seed.as_u64().ok_or(error)?),
        };
        let buffer_bytes = u32::try_from(number("buffer")?).map_err(|_| field("buffer").1)?;
        Ok(RecordingSettings {
            clock,
            seed,
            budget: size("budget")?,
            instance: InstanceLimits {
                buffer_bytes: Some(buffer_bytes).filter(|bytes| *bytes > 0),
                memory_bytes_max: size("run-memory-bytes-max").and_then(|bytes| match bytes {
                    bytes if bytes <= MEMORY_BYTES_MAX => Ok(bytes),
                    _ => Err(field("run-memory-bytes-max").1),
                })?,
                table_elements_max: size("table-elements-max")?,
                step_fuel_max: positive("start-fuel")?,
                step_wall_ms_max: positive("start-ms-max")?,
            },
            run: RunLimits {
                step_fuel_max: positive("fuel")?,
                step_wall_ms_max: positive("step-ms-max")?,
                wall_ms_max: Some(number("wall-ms-max")?).filter(|ms| *ms > 0),
            },
        })
    }
}
