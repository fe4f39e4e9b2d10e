//! Files that are written: each appears whole or not at all, and none in the place of an input.

use super::FileError;
use crate::Result;
use std::fs::{File, Metadata};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Writes a file. Until it is whole, what had its name before stays; a symbolic link stays, and what it leads to is
/// written.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |source| FileError::Io {
        verb: "write",
        path: path.to_owned(),
        source,
    };
    // Devices and pipes have no sibling to rename from.
    if path.exists() && !path.is_file() {
        return Ok(std::fs::write(path, bytes).map_err(failed)?);
    }
    let mut file = PartFile::create(path).map_err(|err| match err {
        FileError::Io { source, .. } => failed(source),
        other => other,
    })?;
    file.write(0, bytes)?;
    file.finish(bytes.len() as u64)?;
    Ok(file.commit()?)
}

/// Refuses an output that is the very file of one of these inputs, however the two are spelled or linked. What is no
/// regular file, or is not there, is no such file.
pub fn check_apart<'a>(output: &Path, inputs: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    let same = |input: &&Path| matches!((regular(output), regular(input)), (Some(a), Some(b)) if is_same((output, &a), (input, &b)));
    match inputs.into_iter().find(same) {
        None => Ok(()),
        Some(input) => Err(FileError::OutputIsInput {
            output: output.to_owned(),
            input: input.to_owned(),
        }
        .into()),
    }
}

fn regular(path: &Path) -> Option<Metadata> {
    path.metadata().ok().filter(Metadata::is_file)
}

#[cfg(unix)]
fn is_same((_, a): (&Path, &Metadata), (_, b): (&Path, &Metadata)) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(not(unix))]
fn is_same((a, _): (&Path, &Metadata), (b, _): (&Path, &Metadata)) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// A file under another name, next to its place. It is removed unless it is committed; a program that is killed leaves
/// it, under a name that ends in `.part`.
#[derive(Debug)]
pub(crate) struct PartFile {
    part: PathBuf,
    /// As it was given.
    target: PathBuf,
    /// Behind all links.
    place: PathBuf,
    file: Option<File>,
    committed: bool,
}

impl PartFile {
    pub(crate) fn create(target: &Path) -> Result<Self, FileError> {
        let failed = |source| FileError::Io {
            verb: "create",
            path: target.to_owned(),
            source,
        };
        let place = target.canonicalize().unwrap_or_else(|_| target.to_owned());
        let mut name = place
            .file_name()
            .ok_or_else(|| failed(std::io::ErrorKind::InvalidInput.into()))?
            .to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let part = place.with_file_name(name);
        let file = File::create(&part).map_err(failed)?;
        // Whoever could not read the old file cannot read the new one.
        let kept = regular(&place).map_or(Ok(()), |old| file.set_permissions(old.permissions()));
        let created = PartFile {
            part,
            target: target.to_owned(),
            place,
            file: Some(file),
            committed: false,
        };
        kept.map_err(failed)?;
        Ok(created)
    }

    /// The path as it was given.
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

    /// Gives the file its name.
    pub(crate) fn commit(mut self) -> Result<(), FileError> {
        std::fs::rename(&self.part, &self.place).map_err(|source| self.failed(source))?;
        self.committed = true;
        Ok(())
    }

    fn with_file(&self, act: impl FnOnce(&File) -> std::io::Result<()>) -> Result<(), FileError> {
        self.file
            .as_ref()
            .map_or(Ok(()), act)
            .map_err(|source| self.failed(source))
    }

    fn failed(&self, source: std::io::Error) -> FileError {
        FileError::Io {
            verb: "write",
            path: self.target.clone(),
            source,
        }
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.committed {
            // Whatever ended the work early is what is reported; a leftover that cannot be removed adds nothing to it.
            std::fs::remove_file(&self.part).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn a_file_stays_as_it_was_until_the_new_one_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old");
        write_whole(&path, b"old").unwrap();
        let mut private = path.metadata().unwrap().permissions();
        private.set_readonly(true);
        std::fs::set_permissions(&path, private.clone()).unwrap();
        let mut part = PartFile::create(&path).unwrap();
        part.write(0, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        // As an error on the way would.
        drop(part);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        write_whole(&path, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(path.metadata().unwrap().permissions(), private);
    }

    #[test]
    fn only_the_very_file_of_an_input_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b, none] = ["a", "b", "none"].map(|name| folder.path().join(name));
        for path in [&a, &b] {
            write_whole(path, b"equal").unwrap();
        }
        check_apart(&a, [&*b, &*none]).unwrap();
        check_apart(&none, [&*a, &*none]).unwrap();
        check_apart(folder.path(), [folder.path()]).unwrap();
        let detour = folder
            .path()
            .join("../")
            .join(folder.path().file_name().unwrap())
            .join("a");
        let err = check_apart(&detour, [&*b, &*a]).unwrap_err();
        assert!(
            matches!(&err, Error::File(FileError::OutputIsInput { output, input }) if *output == detour && *input == a),
            "{err}"
        );
    }
}
