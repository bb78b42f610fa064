//! A slab: values indexed by slot. The cost of a lookup does not depend on the number of values.

/// Slots are reused, the last freed one first. The generation of a slot rises when its value is removed, so that the
/// key of a removed value finds nothing.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<SlabSlot<T>>,
    free: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SlabKey {
    pub(crate) generation: u32,
    pub(crate) slot: u32,
}

#[derive(Debug)]
struct SlabSlot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Slab<T> {
        Slab { slots: Vec::new(), free: Vec::new() }
    }

    /// The caller keeps the number of values below 2^32.
    pub(crate) fn insert(&mut self, value: T) -> SlabKey {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(SlabSlot { generation: 0, value: None });
            (self.slots.len() - 1) as u32
        });
        let entry = &mut self.slots[slot as usize];
        entry.value = Some(value);
        SlabKey { generation: entry.generation, slot }
    }

    pub(crate) fn get(&self, key: SlabKey) -> Option<&T> {
        let slot = self.slots.get(key.slot as usize).filter(|slot| slot.generation == key.generation)?;
        slot.value.as_ref()
    }

    pub(crate) fn get_mut(&mut self, key: SlabKey) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.slot as usize).filter(|slot| slot.generation == key.generation)?;
        slot.value.as_mut()
    }

    pub(crate) fn remove(&mut self, key: SlabKey) -> Option<T> {
        let slot = self.slots.get_mut(key.slot as usize).filter(|slot| slot.generation == key.generation)?;
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.slot);
        Some(value)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// In the order of the slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SlabKey, &T)> {
        self.slots.iter().enumerate().filter_map(|(slot, entry)| {
            let key = SlabKey { generation: entry.generation, slot: slot as u32 };
            entry.value.as_ref().map(|value| (key, value))
        })
    }
}
