//! Files and folders on their way: those of this process are known, so that none need be left behind.

use super::place::{Place, cannot_write};
use crate::io::FileError;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is there and to be removed again unless the work comes to its end: files under other names, and folders, each
/// ahead of what is in it.
static UNFINISHED: Mutex<Vec<Unfinished>> = Mutex::new(Vec::new());

/// Names that are tried for an unfinished file.
const MOST_NAMES: u32 = 10_000;

#[derive(Debug, PartialEq, Eq)]
enum Unfinished {
    File(PathBuf),
    Folder(PathBuf),
}

impl Unfinished {
    fn remove(&self) {
        // Whatever ended the work early is what is reported; a leftover that cannot be removed adds nothing to it.
        match self {
            Unfinished::File(path) => std::fs::remove_file(path).ok(),
            // Only where it is empty.
            Unfinished::Folder(path) => std::fs::remove_dir(path).ok(),
        };
    }
}

type Held = MutexGuard<'static, Vec<Unfinished>>;

/// While this is held, nothing is begun and nothing gets its name.
fn hold() -> Held {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn forget(held: &mut Held, unfinished: &Unfinished) {
    held.retain(|one| one != unfinished);
}

/// Removes every file and folder that this process has begun to write and not ended, for a program that is about to
/// end. From then on no thread can begin an output or give one its name: those that try wait for the end. The library
/// handles no signals; a program that does calls this from a thread of its own, not inside a signal handler.
pub fn abandon_unfinished() {
    let held = hold();
    held.iter().rev().for_each(Unfinished::remove);
    std::mem::forget(held);
}

/// A file under another name, next to its place. It is removed unless it is committed; a program that is killed leaves
/// it, under a name that ends in `.part`.
#[derive(Debug)]
pub(crate) struct PartFile {
    part: PathBuf,
    /// Its place. A link there is replaced, whatever it leads to.
    target: PathBuf,
    file: Option<File>,
    committed: bool,
}

impl PartFile {
    /// Begins a file that is to take the place of what is there.
    pub(crate) fn create(target: &Path) -> Result<Self, FileError> {
        let failed = |source| FileError::Io {
            verb: "create",
            path: target.to_owned(),
            source,
        };
        if Place::of(target)? == Place::WrittenTo {
            return Err(cannot_write(
                target,
                io::Error::other("it is no regular file, and only one can be replaced"),
            ));
        }
        let name = target
            .file_name()
            .ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
        let (part, file) = {
            let mut held = hold();
            let (part, file) = create_beside(target, name).map_err(failed)?;
            held.push(Unfinished::File(part.clone()));
            (part, file)
        };
        let mut created = PartFile {
            part,
            target: target.to_owned(),
            file: None,
            committed: false,
        };
        // Whoever could not read the old file cannot read the new one.
        if let Ok(old) = target.metadata() {
            file.set_permissions(old.permissions()).map_err(failed)?;
        }
        created.file = Some(file);
        Ok(created)
    }

    /// Its place, as it was given.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Writes bytes from position `at` on.
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.with_file(|mut file| file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(bytes)))
    }

    /// Ends writing: everything is on the disk, and no file is open any more. The file may have been written with gaps,
    /// or not up to its end: it has `bytes` bytes from now on.
    pub(crate) fn finish(&mut self, bytes: u64) -> Result<(), FileError> {
        self.with_file(|file| file.set_len(bytes).and_then(|()| file.sync_all()))?;
        self.file = None;
        Ok(())
    }

    fn with_file(&self, act: impl FnOnce(&File) -> io::Result<()>) -> Result<(), FileError> {
        self.file
            .as_ref()
            .map_or(Ok(()), act)
            .map_err(|source| cannot_write(&self.target, source))
    }

    fn commit(&mut self, held: &mut Held) -> Result<(), FileError> {
        std::fs::rename(&self.part, &self.target).map_err(|source| cannot_write(&self.target, source))?;
        self.committed = true;
        forget(held, &Unfinished::File(self.part.clone()));
        Ok(())
    }
}

/// A new file next to a place, under a name that nothing has: another thread may write to the same place, or a process
/// of the same number on another machine; and what has such a name may be a link to something else.
fn create_beside(target: &Path, name: &OsStr) -> io::Result<(PathBuf, File)> {
    let mut last = None;
    for attempt in 0..MOST_NAMES {
        let mut name = name.to_owned();
        name.push(format!(".{}.{attempt}.part", std::process::id()));
        let part = target.with_file_name(name);
        match File::create_new(&part) {
            Ok(file) => return Ok((part, file)),
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => last = Some(err),
            Err(err) => return Err(err),
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::AlreadyExists.into()))
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.committed {
            let unfinished = Unfinished::File(self.part.clone());
            let mut held = hold();
            unfinished.remove();
            forget(&mut held, &unfinished);
        }
    }
}

/// A folder for outputs. It, and those above it, are removed again where they were not there before, unless it is kept
/// or something else has come into them.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// The outermost first.
    made: Vec<PathBuf>,
}

impl Folder {
    pub(crate) fn create(path: &Path) -> Result<Self, FileError> {
        let mut folder = Folder {
            path: path.to_owned(),
            made: Vec::new(),
        };
        let missing = |path: &&Path| !path.as_os_str().is_empty() && !path.is_dir();
        let mut missing: Vec<&Path> = path.ancestors().take_while(missing).collect();
        missing.reverse();
        for path in missing {
            let mut held = hold();
            match std::fs::create_dir(path) {
                Ok(()) => {
                    held.push(Unfinished::Folder(path.to_owned()));
                    folder.made.push(path.to_owned());
                }
                // Another program was faster; or the name ends in dots.
                Err(_) if path.is_dir() => {}
                Err(source) => {
                    drop(held);
                    let path = path.to_owned();
                    return Err(match path.read_link() {
                        Ok(to) => FileError::DanglingLink { path, to },
                        Err(_) => FileError::Io {
                            verb: "create",
                            path,
                            source,
                        },
                    });
                }
            }
        }
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn keep(&mut self, held: &mut Held) {
        for path in self.made.drain(..) {
            forget(held, &Unfinished::Folder(path));
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let mut held = hold();
        for path in self.made.drain(..).rev() {
            let unfinished = Unfinished::Folder(path);
            unfinished.remove();
            forget(&mut held, &unfinished);
        }
    }
}

/// Gives files their names and keeps their folder. No signal comes in between: see [`abandon_unfinished`].
pub(crate) fn commit(mut files: Vec<PartFile>, mut folder: Option<Folder>) -> Result<(), FileError> {
    let mut held = hold();
    let committed = files.iter_mut().try_for_each(|file| file.commit(&mut held));
    if let (Ok(()), Some(folder)) = (&committed, &mut folder) {
        folder.keep(&mut held);
    }
    // What is left is removed when it is dropped, which wants to hold too.
    drop(held);
    committed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_for_one_place_are_apart() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("out");
        let [mut first, mut second, third] = [(); 3].map(|()| PartFile::create(&place).unwrap());
        first.write(0, b"the first, which is longer").unwrap();
        second.write(0, b"the second").unwrap();
        second.finish(10).unwrap();
        commit(vec![second], None).unwrap();
        assert_eq!(std::fs::read(&place).unwrap(), b"the second");
        drop(third);
        first.finish(26).unwrap();
        commit(vec![first], None).unwrap();
        assert_eq!(std::fs::read(&place).unwrap(), b"the first, which is longer");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn nothing_is_written_through_a_link_in_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let (place, other) = (folder.path().join("out"), folder.path().join("other"));
        std::fs::write(&other, "other").unwrap();
        for name in ["out.{}.part", "out.{}.0.part"] {
            let name = name.replace("{}", &std::process::id().to_string());
            std::os::unix::fs::symlink(&other, folder.path().join(name)).unwrap();
        }
        let mut file = PartFile::create(&place).unwrap();
        file.write(0, b"new").unwrap();
        file.finish(3).unwrap();
        commit(vec![file], None).unwrap();
        assert_eq!(std::fs::read(&other).unwrap(), b"other");
        assert!(!place.is_symlink() && std::fs::read(&place).unwrap() == b"new");
    }

    #[test]
    fn folders_that_came_for_nothing_go_again() {
        let scratch = tempfile::tempdir().unwrap();
        let [top, below] = ["a", "a/b/c"].map(|name| scratch.path().join(name));
        let folder = Folder::create(&below).unwrap();
        let file = PartFile::create(&below.join("file")).unwrap();
        assert_eq!(
            hold()
                .iter()
                .filter(|one| matches!(one, Unfinished::File(path) if path.starts_with(&top)))
                .count(),
            1
        );
        drop(file);
        drop(folder);
        assert!(!top.exists());

        // What was there before stays, as does what is in use.
        std::fs::create_dir(&top).unwrap();
        let folder = Folder::create(&below).unwrap();
        std::fs::write(scratch.path().join("a/b/other"), "").unwrap();
        drop(folder);
        assert!(!below.exists() && scratch.path().join("a/b/other").exists());

        let folder = Folder::create(&below).unwrap();
        let mut file = PartFile::create(&below.join("file")).unwrap();
        file.finish(0).unwrap();
        commit(vec![file], Some(folder)).unwrap();
        assert!(below.join("file").exists());
        let is_ours = |one: &Unfinished| match one {
            Unfinished::File(path) | Unfinished::Folder(path) => path.starts_with(scratch.path()),
        };
        assert!(!hold().iter().any(is_ours));
    }
}
