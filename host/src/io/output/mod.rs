//! Files that are written: each appears whole or not at all, and none in the place of an input. A link to a file gives
//! way to the new file, and the old one stays; devices, pipes and open files are written to.

mod part;
mod place;

pub use part::abandon_unfinished;
pub(crate) use part::{Folder, PartFile, commit};
pub(crate) use place::Place;
pub use place::check_writable;

use super::FileError;
use crate::Result;
use std::fs::Metadata;
use std::path::Path;

/// Writes a file. Until it is whole, what had its name before stays. A symbolic link to a file is replaced, and what it
/// leads to stays; what is no regular file is written to.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |source| place::cannot_write(path, source);
    if Place::of(path)? == Place::WrittenTo {
        return Ok(place::write_to(path, bytes).map_err(failed)?);
    }
    let mut file = PartFile::create(path).map_err(|err| match err {
        FileError::Io { source, .. } => failed(source),
        other => other,
    })?;
    file.write(0, bytes)?;
    file.finish(bytes.len() as u64)?;
    Ok(commit(vec![file], None)?)
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
