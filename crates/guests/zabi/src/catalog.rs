//! The capabilities that this host knows: names, flags, and how they are listed.

use millrace_reactor::zcl1::FieldWriter;

/// The guest may open the capability.
const CAN_OPEN: u32 = 1;
/// Calls on its handles may block.
const MAY_BLOCK: u32 = 4;

/// Capabilities in the order of kind and name, which is the order of the list that a guest sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    AsyncDefault,
    EventBus,
    FileAio,
    NetHttp,
    NetTcp,
    ProcArgv,
    ProcEnv,
    SysInfo,
    SysLoop,
}

/// The form of an entry of CAPS_LIST. The documents and the reference disagree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CapsListForm {
    /// Kind, name, flags.
    #[default]
    Documented,
    /// The reference's form: the same fields, and a description as JSON text, which may be empty.
    WithDescription,
}

impl Capability {
    pub const ALL: [Capability; 9] = [
        Capability::AsyncDefault,
        Capability::EventBus,
        Capability::FileAio,
        Capability::NetHttp,
        Capability::NetTcp,
        Capability::ProcArgv,
        Capability::ProcEnv,
        Capability::SysInfo,
        Capability::SysLoop,
    ];

    pub fn kind(self) -> &'static str {
        self.names().0
    }

    pub fn name(self) -> &'static str {
        self.names().1
    }

    /// Returns the capability with this kind and name; the case of letters matters.
    pub fn named(kind: &[u8], name: &[u8]) -> Option<Capability> {
        let is_named = |cap: &Capability| cap.kind().as_bytes() == kind && cap.name().as_bytes() == name;
        Capability::ALL.into_iter().find(is_named)
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Capability::AsyncDefault => ("async", "default"),
            Capability::EventBus => ("event", "bus"),
            Capability::FileAio => ("file", "aio"),
            Capability::NetHttp => ("net", "http"),
            Capability::NetTcp => ("net", "tcp"),
            Capability::ProcArgv => ("proc", "argv"),
            Capability::ProcEnv => ("proc", "env"),
            Capability::SysInfo => ("sys", "info"),
            Capability::SysLoop => ("sys", "loop"),
        }
    }

    /// The flags, with the values of the reference.
    fn flags(self) -> u32 {
        match self {
            Capability::AsyncDefault | Capability::FileAio | Capability::ProcArgv | Capability::ProcEnv => {
                CAN_OPEN
            }
            Capability::EventBus
            | Capability::NetHttp
            | Capability::NetTcp
            | Capability::SysInfo
            | Capability::SysLoop => CAN_OPEN | MAY_BLOCK,
        }
    }

    /// The description, in the reference's words.
    fn description(self) -> &'static str {
        match self {
            Capability::FileAio => concat!(
                r#"{"kind":"file","name":"aio","open":{"params":"(empty)"},"ops":["OPEN","CLOSE","READ","#,
                r#""WRITE","MKDIR","RMDIR","UNLINK","STAT","READDIR"],"ev":["DONE"]}"#
            ),
            Capability::ProcArgv => concat!(
                r#"{"kind":"proc","name":"argv","open":{"params":"(none)"},"#,
                r#""format":"u32 version; u32 argc; repeat(argc){u32 len; bytes[len]}"}"#
            ),
            Capability::ProcEnv => concat!(
                r#"{"kind":"proc","name":"env","open":{"params":"(none)"},"#,
                r#""format":"u32 version; u32 envc; repeat(envc){u32 len; bytes[len]}"}"#
            ),
            _ => "",
        }
    }

    /// Appends the entry that `zi_cap_get` returns.
    pub(crate) fn encode(self, to: &mut Vec<u8>) {
        let mut fields = FieldWriter::new(to);
        fields.prefixed(self.kind().as_bytes()).prefixed(self.name().as_bytes()).u32(self.flags());
    }
}

/// Returns the payload of CAPS_LIST.
pub(crate) fn encode_list(granted: &[Capability], form: CapsListForm) -> Vec<u8> {
    let mut payload = Vec::new();
    let count = u32::try_from(granted.len()).unwrap_or(u32::MAX);
    FieldWriter::new(&mut payload).u32(1).u32(count);
    for capability in granted {
        capability.encode(&mut payload);
        if form == CapsListForm::WithDescription {
            FieldWriter::new(&mut payload).prefixed(capability.description().as_bytes());
        }
    }
    payload
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_sorted_by_kind_and_name() {
        let names: Vec<_> = Capability::ALL.iter().map(|cap| cap.names()).collect();
        assert!(names.is_sorted() && Capability::ALL.is_sorted());
        for capability in Capability::ALL {
            let named = Capability::named(capability.kind().as_bytes(), capability.name().as_bytes());
            assert_eq!(named, Some(capability));
        }
        assert_eq!(Capability::named(b"sys", b"Loop"), None);
    }
}
