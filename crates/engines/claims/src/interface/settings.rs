//! Settings of single handlers, and the limits that result from them and the session's configuration.

use millrace_model::HandlerOrder;

use crate::claiming::rate::{RATE_MAX, RATE_MIN, Rate};
use crate::interface::config::WorkerConfig;
use crate::interface::error::SpecError;
use crate::interface::spec::HandlerSpec;

/// Settings of one handler. `None` = as in the session's configuration. Times are milliseconds.
///
/// They come from two places: the program gives them with the handler, and [`WorkerConfig::handlers`] by the handler's
/// id. The configuration wins, setting by setting.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HandlerSettings {
    /// A run that has not ended after this time has failed: `no answer within N ms`. Default: `handler_timeout_ms`.
    pub timeout_ms: Option<u64>,
    /// Failed or expired attempts after which an event is given up. Default: `event_max_attempts`.
    pub max_attempts: Option<u32>,
    /// Default: `event_backoff_base_ms`.
    pub backoff_base_ms: Option<u64>,
    /// Default: `event_backoff_max_ms`.
    pub backoff_max_ms: Option<u64>,
    /// Concurrent runs of this handler in this session, within `handler_concurrency`. Default: only that limit.
    pub concurrency: Option<usize>,
    /// Runs of this handler that begin per second in this session, evenly spaced; 0.1 is one in ten seconds. Default:
    /// no limit.
    pub rate_per_s: Option<f64>,
    /// How long a claimed event belongs to this session; at least the timeout, unless leases are renewed. Default:
    /// `event_claim_lease_ms`, or twice the timeout if that is longer.
    pub lease_ms: Option<u64>,
    /// Nothing is claimed and nothing is started. The handler's events wait, and retention keeps them.
    pub paused: Option<bool>,
    /// The order in which events are claimed. Default: by priority, then by age. All sessions of a handler must agree:
    /// a session that claims by priority does not respect the order of keys.
    pub order: Option<HandlerOrder>,
}

impl HandlerSettings {
    fn or(&self, other: &HandlerSettings) -> HandlerSettings {
        HandlerSettings {
            timeout_ms: self.timeout_ms.or(other.timeout_ms),
            max_attempts: self.max_attempts.or(other.max_attempts),
            backoff_base_ms: self.backoff_base_ms.or(other.backoff_base_ms),
            backoff_max_ms: self.backoff_max_ms.or(other.backoff_max_ms),
            concurrency: self.concurrency.or(other.concurrency),
            rate_per_s: self.rate_per_s.or(other.rate_per_s),
            lease_ms: self.lease_ms.or(other.lease_ms),
            paused: self.paused.or(other.paused),
            order: self.order.or(other.order),
        }
    }

    fn check(&self, handler: &str) -> Result<(), SpecError> {
        let numbers = [
            ("timeout_ms", self.timeout_ms),
            ("max_attempts", self.max_attempts.map(u64::from)),
            ("concurrency", self.concurrency.map(|number| number as u64)),
            ("lease_ms", self.lease_ms),
        ];
        if let Some((name, _)) = numbers.into_iter().find(|(_, number)| *number == Some(0)) {
            return Err(SpecError::ZeroSetting { handler: handler.to_owned(), name });
        }
        match self.rate_per_s {
            // The range check also refuses NaN.
            Some(rate) if !(RATE_MIN..=RATE_MAX).contains(&rate) => {
                Err(SpecError::Rate { handler: handler.to_owned(), rate: rate.to_string() })
            }
            _ => Ok(()),
        }
    }
}

/// The limits of one handler, with every default filled in.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) max_attempts: u32,
    pub(crate) backoff_base_ms: u64,
    pub(crate) backoff_max_ms: u64,
    pub(crate) concurrency: usize,
    pub(crate) rate: Option<Rate>,
    pub(crate) lease_ms: u64,
    pub(crate) paused: bool,
    pub(crate) order: HandlerOrder,
}

impl Limits {
    pub(crate) fn of(config: &WorkerConfig, spec: &HandlerSpec) -> Result<Limits, SpecError> {
        let own = match config.handlers.get(spec.id.as_str()) {
            Some(settings) => settings.or(&spec.settings),
            None => spec.settings.clone(),
        };
        own.check(spec.id.as_str())?;
        let timeout_ms = own.timeout_ms.or(config.handler_timeout_ms);
        let lease_ms = own.lease_ms.unwrap_or_else(|| {
            // A run begins with at least half of its lease left, so twice the timeout leaves room for a whole run.
            let needed_ms = timeout_ms.filter(|_| !config.lease_renewal).unwrap_or(0).saturating_mul(2);
            config.event_claim_lease_ms.max(needed_ms)
        });
        if let Some(timeout_ms) =
            timeout_ms.filter(|timeout_ms| lease_ms < *timeout_ms && !config.lease_renewal)
        {
            let handler = spec.id.as_str().to_owned();
            return Err(SpecError::LeaseBelowTimeout { handler, lease_ms, timeout_ms });
        }
        Ok(Limits {
            timeout_ms,
            max_attempts: own.max_attempts.unwrap_or(config.event_max_attempts),
            backoff_base_ms: own.backoff_base_ms.unwrap_or(config.event_backoff_base_ms),
            backoff_max_ms: own.backoff_max_ms.unwrap_or(config.event_backoff_max_ms),
            concurrency: own.concurrency.unwrap_or(usize::MAX),
            rate: own.rate_per_s.map(Rate::new),
            lease_ms,
            paused: own.paused.unwrap_or(false),
            order: own.order.unwrap_or_default(),
        })
    }

    /// Events that this handler holds at most: no more than can begin before half of their lease is over.
    pub(crate) fn claims_max(&self, event_claim_limit: usize) -> usize {
        let by_rate = self.rate.as_ref().map_or(usize::MAX, |rate| rate.runs_within(self.lease_ms / 2));
        event_claim_limit.min(by_rate.max(1))
    }
}
