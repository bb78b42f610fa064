//! The rule by which a topic's access lists admit somebody: the engine asks it, and so do readers of history, who do
//! not pass the engine.

use crate::log::stream::TopicKey;
use crate::topics::access::{AccessList, Action, Principal};
use crate::topics::topic_config::TopicConfig;

/// A topic and the settings that its access lists are in.
#[derive(Clone, Copy, Debug)]
pub struct TopicAccess<'a> {
    pub topic: &'a TopicKey,
    /// `None` if the topic does not exist.
    pub config: Option<&'a TopicConfig>,
    /// Settings of the topic whose dead letters this topic holds. Dead letters are copies of its events, so its lists
    /// hold where this topic has none of its own.
    pub letters_of: Option<&'a TopicConfig>,
}

impl<'a> TopicAccess<'a> {
    pub fn list(&self, action: Action) -> Option<&'a AccessList> {
        let own = self.config.and_then(|config| config.access(action));
        own.or_else(|| self.letters_of.and_then(|config| config.access(action)))
    }

    pub fn permits(&self, who: &Principal, action: Action) -> bool {
        match (self.list(action), action) {
            (Some(list), _) => list.permits(who),
            (None, Action::Publish) => !self.topic.is_system(),
            (None, Action::Subscribe) => who.may_read_unlisted(self.topic),
        }
    }

    /// Whether somebody who may not read the topic may know that it exists.
    pub fn may_be_seen_by(&self, who: &Principal) -> bool {
        who.may_see(self.topic, self.permits(who, Action::Publish))
    }
}
