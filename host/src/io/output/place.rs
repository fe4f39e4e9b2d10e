//! What stands where an output is to go, and how the output gets there.

use crate::io::FileError;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

/// Links that may follow each other, as the kernel has it.
const MOST_LINKS: usize = 40;

/// How an output gets to its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// A new file takes the name: of nothing yet, of a regular file, or of a link to one. What a link leads to stays,
    /// as others may have links to it too.
    Replaced,
    /// What is there is written to: a device, a pipe, a file that a process has open (`/dev/stdout`).
    WrittenTo,
}

impl Place {
    /// Folders, and links that lead nowhere, are no place for an output.
    pub(crate) fn of(path: &Path) -> Result<Self, FileError> {
        let failed = |source| cannot_write(path, source);
        let is_link = match path.symlink_metadata() {
            Ok(there) => there.is_symlink(),
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Place::Replaced),
            Err(err) => return Err(failed(err)),
        };
        match path.metadata() {
            Ok(there) if there.is_dir() => Err(failed(io::ErrorKind::IsADirectory.into())),
            Ok(there) if there.is_file() && !is_open_file(path) => Ok(Place::Replaced),
            Ok(_) => Ok(Place::WrittenTo),
            Err(err) if is_link && err.kind() == io::ErrorKind::NotFound => Err(FileError::DanglingLink {
                path: path.to_owned(),
                to: path.read_link().unwrap_or_default(),
            }),
            Err(err) => Err(failed(err)),
        }
    }
}

/// Fails where a file could not be written, ahead of long work for it. It harms nothing and leaves nothing.
pub fn check_writable(path: &Path) -> crate::Result<()> {
    if Place::of(path)? == Place::WrittenTo {
        return Ok(());
    }
    let checked = match path.symlink_metadata() {
        Ok(there) if there.is_file() => OpenOptions::new().write(true).open(path).map(drop),
        _ => match folder_of(path).metadata() {
            Ok(folder) if folder.is_dir() => Ok(()),
            Ok(_) => Err(io::ErrorKind::NotADirectory.into()),
            Err(err) => Err(err),
        },
    };
    Ok(checked.map_err(|source| cannot_write(path, source))?)
}

pub(super) fn cannot_write(path: &Path, source: io::Error) -> FileError {
    FileError::Io {
        verb: "write",
        path: path.to_owned(),
        source,
    }
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Whether a name is one that the system gives to what a process has open, or leads to one: the file behind has a name
/// of its own, which was not given.
fn is_open_file(path: &Path) -> bool {
    let mut path: PathBuf = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(folder) = folder_of(&path).canonicalize() else {
            return false;
        };
        if folder == Path::new("/dev") || folder.starts_with("/dev/fd") || folder.starts_with("/proc") {
            return true;
        }
        match path.read_link() {
            Ok(to) => path = folder.join(to),
            Err(_) => return false,
        }
    }
    false
}

/// Writes to what is there. Where that is an output of this process, the bytes stand between what it writes before and
/// after.
pub(super) fn write_to(path: &Path, bytes: &[u8]) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::io::Write;
        use std::os::fd::AsFd;
        let mut stdout = io::stdout().lock();
        if let Some(mut open) = opened_as(path, stdout.as_fd())? {
            stdout.flush()?;
            return open.write_all(bytes);
        }
        if let Some(mut open) = opened_as(path, io::stderr().as_fd())? {
            return open.write_all(bytes);
        }
    }
    std::fs::write(path, bytes)
}

/// A descriptor as a file, if it is open on the file of that path.
#[cfg(unix)]
fn opened_as(path: &Path, open: std::os::fd::BorrowedFd<'_>) -> io::Result<Option<std::fs::File>> {
    use std::os::unix::fs::MetadataExt;
    // A program may have been started with its outputs closed.
    let Ok(open) = open.try_clone_to_owned().map(std::fs::File::from) else {
        return Ok(None);
    };
    let (a, b) = (path.metadata()?, open.metadata()?);
    Ok(((a.dev(), a.ino()) == (b.dev(), b.ino())).then_some(open))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::Error;
    use crate::io::output::write_whole;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_to_a_file_is_replaced_and_the_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let name = |name: &str| folder.path().join(name);
        fs::write(name("blob"), "shared").unwrap();
        symlink("blob", name("link")).unwrap();
        symlink("link", name("far")).unwrap();
        for link in ["far", "link"] {
            check_writable(&name(link)).unwrap();
            write_whole(&name(link), b"new").unwrap();
            assert!(!name(link).is_symlink(), "{link}");
            assert_eq!(fs::read(name(link)).unwrap(), b"new");
            assert_eq!(fs::read(name("blob")).unwrap(), b"shared");
        }
        // A folder may be reached by links.
        fs::create_dir(name("folder")).unwrap();
        symlink("folder", name("folder link")).unwrap();
        write_whole(&name("folder link/new"), b"new").unwrap();
        assert_eq!(fs::read(name("folder/new")).unwrap(), b"new");
        assert!(name("folder link").is_symlink());
    }

    #[test]
    fn a_link_to_a_folder_or_to_nothing_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let [link, to] = ["link", "to"].map(|name| folder.path().join(name));
        symlink(&to, &link).unwrap();
        for refused in [check_writable(&link), write_whole(&link, b"new")] {
            let err = refused.unwrap_err();
            assert!(
                matches!(&err, Error::File(FileError::DanglingLink { path, to: there }) if *path == link && *there == to),
                "{err}"
            );
        }
        fs::create_dir(&to).unwrap();
        for refused in [check_writable(&link), write_whole(&link, b"new")] {
            let err = refused.unwrap_err().to_string();
            assert!(err.contains("link") && err.contains("directory"), "{err}");
        }
        assert!(link.is_symlink() && fs::read_dir(to).unwrap().next().is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn devices_pipes_and_open_files_are_written_to() {
        use std::os::fd::AsRawFd;
        use std::os::unix::fs::FileTypeExt;
        let folder = tempfile::tempdir().unwrap();
        let null = folder.path().join("null");
        symlink("/dev/null", &null).unwrap();
        for path in [Path::new("/dev/null"), &null] {
            check_writable(path).unwrap();
            write_whole(path, b"new").unwrap();
        }
        assert!(null.is_symlink() && fs::metadata("/dev/null").unwrap().file_type().is_char_device());

        let file = fs::File::create(folder.path().join("file")).unwrap();
        let fd = file.as_raw_fd();
        let link = folder.path().join("fd");
        symlink(format!("/dev/fd/{fd}"), &link).unwrap();
        for (path, text) in [(format!("/dev/fd/{fd}"), "a"), (format!("/proc/self/fd/{fd}"), "b")] {
            check_writable(Path::new(&path)).unwrap();
            write_whole(Path::new(&path), text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), text);
        }
        write_whole(&link, b"c").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(folder.path().join("file")).unwrap(), b"c");
    }
}
