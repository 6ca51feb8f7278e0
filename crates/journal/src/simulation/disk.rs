//! The simulated disk.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use ropewalk_sync::{Arc, Mutex};

use crate::disk::{Disk, File};

/// What is written at once on the disk, if anything of it is.
const SECTOR: usize = 16;

/// Numbers from a seed: SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
#[derive(Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below the limit.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// What will go wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plan {
    /// The power fails in this step.
    pub(crate) crash_at: Option<u64>,
    /// This step reports an error of the disk.
    pub(crate) fail_at: Option<u64>,
    /// All files together have so many bytes at most.
    pub(crate) capacity: Option<u64>,
    /// Syncs do nothing.
    pub(crate) lies: bool,
    /// Writes take only a part of what they are given.
    pub(crate) short: bool,
    /// No room can be taken ahead.
    pub(crate) bare: bool,
}

enum Change {
    Write(usize, Vec<u8>),
    Size(usize),
}

#[derive(Default)]
struct Inode {
    /// What survives a crash for certain.
    kept: Vec<u8>,
    /// What the program sees.
    seen: Vec<u8>,
    /// What leads from the one to the other.
    pending: Vec<Change>,
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write(offset, data) => {
            let end = offset + data.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[*offset..end].copy_from_slice(data);
        }
        Change::Size(size) => bytes.resize(*size, 0),
    }
}

struct World {
    chance: Chance,
    plan: Plan,
    steps: u64,
    syncs: u64,
    is_off: bool,
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    kept_names: BTreeMap<PathBuf, usize>,
    /// Names as they were after each change since the folder was synced.
    name_changes: Vec<BTreeMap<PathBuf, usize>>,
    locked: BTreeSet<usize>,
    /// What a name leads to from the next lock on.
    renamed: Option<(PathBuf, usize)>,
}

impl World {
    fn step(&mut self) -> io::Result<()> {
        self.steps += 1;
        if self.plan.crash_at == Some(self.steps) {
            self.is_off = true;
        }
        if self.is_off {
            return Err(io::Error::other("the power is off"));
        }
        if self.plan.fail_at == Some(self.steps) {
            // EIO
            return Err(io::Error::from_raw_os_error(5));
        }
        Ok(())
    }

    fn used(&self) -> u64 {
        let named: BTreeSet<_> = self.names.values().chain(&self.locked).collect();
        named.into_iter().map(|inode| self.inodes[*inode].seen.len() as u64).sum()
    }

    fn has_room(&self, more: u64) -> bool {
        self.plan.capacity.is_none_or(|most| self.used() + more <= most)
    }

    fn rename_seen(&mut self) {
        self.name_changes.push(self.names.clone());
    }
}

/// The disk. Clones are the same one.
#[derive(Clone)]
pub(crate) struct SimulatedDisk(Arc<Mutex<World>>, Arc<Mutex<Option<Interruption>>>);

/// What another thread does in the middle of a step.
type Interruption = Box<dyn FnOnce() + Send>;

impl SimulatedDisk {
    pub(crate) fn new(seed: u64) -> Self {
        let world = World {
            chance: Chance::of(seed),
            plan: Plan::default(),
            steps: 0,
            syncs: 0,
            is_off: false,
            inodes: Vec::new(),
            names: BTreeMap::new(),
            kept_names: BTreeMap::new(),
            name_changes: Vec::new(),
            locked: BTreeSet::new(),
            renamed: None,
        };
        Self(Arc::new(Mutex::new(world)), Arc::default())
    }

    /// From now on this goes wrong; steps count from here.
    pub(crate) fn plan(&self, plan: Plan) {
        let mut world = self.0.lock();
        (world.plan, world.steps) = (plan, 0);
    }

    pub(crate) fn steps(&self) -> u64 {
        self.0.lock().steps
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.0.lock().syncs
    }

    pub(crate) fn is_off(&self) -> bool {
        self.0.lock().is_off
    }

    /// How many files there are.
    pub(crate) fn files(&self) -> usize {
        self.0.lock().names.len()
    }

    /// What a file holds that is on the disk under this name.
    pub(crate) fn content(&self, path: &Path) -> Vec<u8> {
        let world = self.0.lock();
        world.names.get(path).map(|inode| world.inodes[*inode].seen.clone()).unwrap_or_default()
    }

    /// Puts a file there, as if it had always been.
    pub(crate) fn put(&self, path: &Path, content: &[u8]) {
        let mut world = self.0.lock();
        let inode = world.inodes.len();
        world.inodes.push(Inode { kept: content.to_vec(), seen: content.to_vec(), ..Inode::default() });
        world.names.insert(path.to_owned(), inode);
        world.kept_names = world.names.clone();
    }

    /// Changes what the file holds to which this name leads, as another process would.
    pub(crate) fn change(&self, path: &Path, content: &[u8]) {
        let mut world = self.0.lock();
        let inode = world.names[path];
        world.inodes[inode].seen = content.to_vec();
    }

    /// Has this name lead to a file of such content until the next lock is taken, and then to what it leads to now.
    pub(crate) fn put_when_locked(&self, path: &Path, content: &[u8]) {
        let before = self.0.lock().names[path];
        self.put(path, content);
        self.0.lock().renamed = Some((path.to_owned(), before));
    }

    /// In the next sync, another thread does this.
    pub(crate) fn at_next_sync(&self, interruption: impl FnOnce() + Send + 'static) {
        *self.1.lock() = Some(Box::new(interruption));
    }

    /// The program that had files open is gone.
    pub(crate) fn unlock(&self) {
        self.0.lock().locked.clear();
    }

    /// The power comes back: whatever was not synced is there in parts, or not, in any order.
    pub(crate) fn power_on(&self) {
        let mut world = self.0.lock();
        let World { chance, inodes, .. } = &mut *world;
        for inode in inodes {
            // Nothing, a little, half, most, all.
            let share = [0, 1, 4, 7, 8][usize::try_from(chance.below(5)).expect("small")];
            let mut bytes = inode.kept.clone();
            for change in inode.pending.drain(..) {
                match change {
                    Change::Size(_) if chance.below(8) < share => apply(&mut bytes, &change),
                    Change::Size(_) => {}
                    Change::Write(offset, data) => {
                        for (index, sector) in data.chunks(SECTOR).enumerate() {
                            if chance.below(8) < share {
                                let part = Change::Write(offset + index * SECTOR, sector.to_vec());
                                apply(&mut bytes, &part);
                            }
                        }
                    }
                }
            }
            inode.kept.clone_from(&bytes);
            inode.seen = bytes;
        }
        let count = world.name_changes.len() as u64 + 1;
        let kept = usize::try_from(world.chance.below(count)).expect("small");
        if kept > 0 {
            world.kept_names = world.name_changes[kept - 1].clone();
        }
        world.names = world.kept_names.clone();
        world.name_changes.clear();
        world.locked.clear();
        world.is_off = false;
        world.plan = Plan::default();
    }
}

/// A file of the simulated disk.
pub(crate) struct SimulatedFile {
    disk: SimulatedDisk,
    inode: usize,
    holds: Mutex<bool>,
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        if *self.holds.lock() {
            self.disk.0.lock().locked.remove(&self.inode);
        }
    }
}

impl Disk for SimulatedDisk {
    type File = SimulatedFile;

    type Folder = ();

    fn open(&self, path: &Path, make: bool) -> io::Result<SimulatedFile> {
        let mut world = self.0.lock();
        world.step()?;
        let inode = match world.names.get(path) {
            Some(inode) => *inode,
            None if make => {
                let inode = world.inodes.len();
                world.inodes.push(Inode::default());
                world.names.insert(path.to_owned(), inode);
                world.rename_seen();
                inode
            }
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(SimulatedFile { disk: self.clone(), inode, holds: Mutex::new(false) })
    }

    fn create(&self, path: &Path) -> io::Result<SimulatedFile> {
        let mut world = self.0.lock();
        if let Some(inode) = world.names.get(path) {
            if world.locked.contains(inode) {
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            world.step()?;
            world.names.remove(path);
            world.rename_seen();
        }
        drop(world);
        let file = self.open(path, true)?;
        file.lock()?.map_err(|_| io::ErrorKind::ResourceBusy)?;
        Ok(file)
    }

    fn is_at(&self, file: &SimulatedFile, path: &Path) -> io::Result<bool> {
        let mut world = self.0.lock();
        world.step()?;
        Ok(world.names.get(path) == Some(&file.inode))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.0.lock();
        world.step()?;
        let inode = world.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        world.names.insert(to.to_owned(), inode);
        world.rename_seen();
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut world = self.0.lock();
        world.step()?;
        world.names.remove(path).ok_or(io::ErrorKind::NotFound)?;
        world.rename_seen();
        Ok(())
    }

    fn folder(&self, _: &Path) -> io::Result<()> {
        self.0.lock().step()
    }

    fn sync_folder(&self, (): &()) -> io::Result<()> {
        let mut world = self.0.lock();
        world.step()?;
        if !world.plan.lies {
            world.kept_names = world.names.clone();
            world.name_changes.clear();
        }
        Ok(())
    }

    fn number(&self) -> u64 {
        self.0.lock().chance.next()
    }
}

impl File for SimulatedFile {
    fn lock(&self) -> io::Result<Result<(), u32>> {
        let mut world = self.disk.0.lock();
        world.step()?;
        if !world.locked.insert(self.inode) {
            return Ok(Err(0));
        }
        *self.holds.lock() = true;
        if let Some((path, inode)) = world.renamed.take() {
            world.names.insert(path, inode);
        }
        Ok(Ok(()))
    }

    fn size(&self) -> io::Result<u64> {
        let mut world = self.disk.0.lock();
        world.step()?;
        Ok(world.inodes[self.inode].seen.len() as u64)
    }

    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut world = self.disk.0.lock();
        world.step()?;
        let bytes = &world.inodes[self.inode].seen;
        let from = bytes.get(usize::try_from(offset).expect("small")..).unwrap_or_default();
        let count = from.len().min(to.len());
        to[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut world = self.disk.0.lock();
        let result = world.step();
        let offset = usize::try_from(offset).expect("small");
        let mut count = bytes.len();
        if world.plan.short && count > 1 {
            count = 1 + usize::try_from(world.chance.below(count as u64)).expect("small");
        }
        // Whatever a step that fails has done, it may have done.
        if result.is_err() {
            count = usize::try_from(world.chance.below(count as u64 + 1)).expect("small");
        }
        let more = (offset + count).saturating_sub(world.inodes[self.inode].seen.len()) as u64;
        if more > 0 && !world.has_room(more) {
            result?;
            // ENOSPC
            return Err(io::Error::from_raw_os_error(28));
        }
        let change = Change::Write(offset, bytes[..count].to_vec());
        let inode = &mut world.inodes[self.inode];
        apply(&mut inode.seen, &change);
        inode.pending.push(change);
        result.map(|()| count)
    }

    fn extend(&self, from: u64, to: u64) -> io::Result<()> {
        let mut world = self.disk.0.lock();
        world.step()?;
        if world.plan.bare {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if !world.has_room(to.saturating_sub(from)) {
            return Err(io::Error::from_raw_os_error(28));
        }
        let inode = &mut world.inodes[self.inode];
        let change = Change::Size(inode.seen.len().max(usize::try_from(to).expect("small")));
        apply(&mut inode.seen, &change);
        inode.pending.push(change);
        Ok(())
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        let mut world = self.disk.0.lock();
        world.step()?;
        let change = Change::Size(usize::try_from(size).expect("small"));
        let inode = &mut world.inodes[self.inode];
        apply(&mut inode.seen, &change);
        inode.pending.push(change);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        if let Some(interruption) = self.disk.1.lock().take() {
            interruption();
        }
        let mut world = self.disk.0.lock();
        let result = world.step();
        world.syncs += 1;
        if !world.plan.lies && result.is_ok() {
            let inode = &mut world.inodes[self.inode];
            inode.kept.clone_from(&inode.seen);
            inode.pending.clear();
        }
        result
    }
}
