//! `proc/argv` and `proc/env`: lists of texts that a guest reads once, from beginning to end.

use millrace_reactor::ZabiError;
use millrace_reactor::zcl1::FieldWriter;

use crate::handle::{HandleFlags, OpenHandle};
use crate::handles::Handles;
use crate::memory::GuestMemory;

/// A handle of such a list: `u32 1, u32 count`, then each text as `u32 length, bytes`.
#[derive(Debug)]
pub(crate) struct ListHandle {
    bytes: Vec<u8>,
    read: usize,
}

impl ListHandle {
    pub(crate) fn new(texts: &[Vec<u8>]) -> ListHandle {
        let mut bytes = Vec::new();
        let mut fields = FieldWriter::new(&mut bytes);
        fields.u32(1).u32(u32::try_from(texts.len()).unwrap_or(u32::MAX));
        for text in texts {
            fields.prefixed(text);
        }
        ListHandle { bytes, read: 0 }
    }
}

impl OpenHandle for ListHandle {
    fn flags(&self) -> HandleFlags {
        HandleFlags::READ
    }

    fn read(&mut self, to: &mut [u8], _handles: &mut Handles) -> Result<usize, ZabiError> {
        let rest = self.bytes.get(self.read..).unwrap_or_default();
        let count = rest.len().min(to.len());
        to[..count].copy_from_slice(&rest[..count]);
        self.read += count;
        Ok(count)
    }

    fn write(
        &mut self,
        _from: &[u8],
        _memory: &dyn GuestMemory,
        _handles: &mut Handles,
    ) -> Result<usize, ZabiError> {
        Err(ZabiError::Denied)
    }
}
