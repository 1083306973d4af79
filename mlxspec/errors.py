"""Every error that a user can see, in one tree.

MlxspecError
├── UsageError            the command line or a request is wrong (exit code 2)
├── RegistryError         models.toml or a model's name
│   ├── InvalidRegistry
│   └── UnknownModel
├── SourceError           finding and fetching model files
│   ├── DownloadFailed
│   │   └── DownloadCancelled   stopped by the user (exit code 130)
│   ├── HashMismatch
│   ├── NotOnDisk
│   ├── GatedModel
│   └── NotWritable
├── ModelError            files that are there but cannot be used
│   ├── NotAModel
│   ├── BrokenModel
│   ├── UnsupportedModel
│   ├── UnsupportedCache
│   └── IncompatiblePair
├── StoreError            the saved chats
│   ├── StoreNotWritable
│   ├── StoreNotReadable
│   ├── StoreDamaged
│   ├── StoreTooNew
│   └── UnknownChat
├── InvalidSettings       settings.toml breaks a rule
├── PromptTooLong
├── OutOfMemory
├── NothingLoaded         an answer was asked for, and no model is in memory
└── EngineError           a fault inside mlxspec; the log file has the details
"""

from __future__ import annotations

from typing import ClassVar


class MlxspecError(Exception):
    """What happened, in one sentence, and what to do about it, in another.

    Attributes:
        message: what happened and where.
        hint: what the user can do.
        exit_code: the exit status of the command line program.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def kind(self) -> str:
        """The name of the error's class, as `--json` reports it."""
        return type(self).__name__

    def __str__(self) -> str:
        return f"{self.message} {self.hint}"


class UsageError(MlxspecError):
    """An option, a value or a request that makes no sense."""

    exit_code = 2


class RegistryError(MlxspecError):
    """The registry of models cannot be used as it stands."""


class InvalidRegistry(RegistryError):
    """A models.toml breaks a rule; the message names file, table and key."""


class UnknownModel(RegistryError):
    """No model of that name; the message gives the nearest ones."""


class SourceError(MlxspecError):
    """A model's files cannot be found, fetched or kept."""


class DownloadFailed(SourceError):
    """A download ended before all of the file was there."""


class DownloadCancelled(DownloadFailed):
    """The user stopped a download."""

    exit_code = 130


class HashMismatch(SourceError):
    """A file is not the one that the registry names."""


class NotOnDisk(SourceError):
    """The files are not here and the network may not be, or cannot be, used."""


class GatedModel(SourceError):
    """The Hub gives this model only to those who asked for it."""


class NotWritable(SourceError):
    """A folder that mlxspec must write to refuses."""


class ModelError(MlxspecError):
    """Files are there but make no usable model."""


class NotAModel(ModelError):
    """A folder or file that holds no model mlxspec may load."""


class BrokenModel(ModelError):
    """A model file is damaged or incomplete."""


class UnsupportedModel(ModelError):
    """An architecture, tensor type or format that is not supported."""


class UnsupportedCache(ModelError):
    """A cache option that this model's layers cannot take."""


class IncompatiblePair(ModelError):
    """This draft cannot guess for this target."""


class StoreError(MlxspecError):
    """The saved chats cannot be used as they stand."""


class StoreNotWritable(StoreError):
    """Chats that are on disk can be read, but nothing can be saved: full, read-only or locked."""


class StoreNotReadable(StoreError):
    """The file of the saved chats cannot even be read."""


class StoreDamaged(StoreError):
    """The file of the saved chats is no database, or a broken one. It is left as it is."""


class StoreTooNew(StoreError):
    """A newer mlxspec wrote the saved chats. They are left as they are."""


class UnknownChat(StoreError):
    """No saved chat, or more than one, goes by this ID; or another program deleted it."""


class InvalidSettings(MlxspecError):
    """A settings.toml breaks a rule; the message names file and key."""


class PromptTooLong(MlxspecError):
    """The prompt does not fit into the context."""


class OutOfMemory(MlxspecError):
    """The device has no memory left for this model or context."""


class NothingLoaded(MlxspecError):
    """There is no model in memory to answer with."""


class EngineError(MlxspecError):
    """A fault inside mlxspec or a library; details are in the log file."""
