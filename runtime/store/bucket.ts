import { timeoutSignal, withTimeout } from '../concurrency.js';
import { readAtMost } from '../http/read-at-most.js';
import { sameBytes, StoreError, type SnapshotStore } from './store.js';

export const CONNECT_MS = 2_000;
/** Milliseconds without data after which a connection is closed. */
export const SILENT_MS = 5_000;
/** Time limit of one request, including the retries of the cloud's client. */
const OPERATION_MS = 30_000;
export const ATTEMPTS = 3;
const AT_ONCE = 16;
/** Size limit of an object, above the largest entry bundle: 256 entries of 64 KiB. */
const MAX_BYTES = 17 * 1024 * 1024;

const IMMUTABLE = /^(?:tile|map)\//;
/** The object on which the publisher tests conditional writes. */
const PROBE = '.conditional-writes';

/** One version of an object, with the tag that the server gives to this version. */
interface Found {
  bytes: Uint8Array;
  tag: string;
}

export interface OpenedObject {
  body: AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
  tag: string;
}

export interface ObjectHeaders {
  contentType: string;
  cacheControl: string;
}

/**
 * A bucket of an object store. Writes are conditional, so after a lost response the stored object
 * shows whether the write happened.
 */
export abstract class BucketStore implements SnapshotStore {
  readonly directory = null;
  protected readonly bucket: string;
  /** A tag that no version of an object has. */
  protected abstract readonly unusedTag: string;
  private readonly prefix: string;
  private prepared = false;
  /** The last known versions of objects that the publisher replaces. */
  private readonly known = new Map<string, Found>();

  /** @param where scheme://bucket or scheme://bucket/prefix */
  constructor(readonly where: string) {
    const [, bucket = '', prefix = ''] = /^\w+:\/\/([^/]+)\/?(.*?)\/?$/.exec(where) ?? [];
    this.bucket = bucket;
    this.prefix = prefix === '' ? '' : `${prefix}/`;
  }

  /**
   * @param known the tag of the version that this process has
   * @returns `unchanged` instead of an object that still has the tag `known`; null if the object does not exist
   */
  protected abstract open(
    key: string,
    known: string | undefined,
    signal: AbortSignal,
  ): Promise<OpenedObject | 'unchanged' | null>;

  /**
   * @param present the tag of the version to replace; null to create the object
   * @returns the new tag; null if the object does not have the version `present`
   */
  protected abstract write(
    key: string,
    bytes: Uint8Array,
    present: string | null,
    headers: ObjectHeaders,
    signal: AbortSignal,
  ): Promise<string | null>;

  /** Lists keys that begin with a prefix, ascending, a page at a time. */
  protected abstract listPage(
    prefix: string,
    token: string | undefined,
    signal: AbortSignal,
  ): Promise<{ keys: string[]; next: string | undefined }>;

  protected abstract removeObject(key: string, signal: AbortSignal): Promise<void>;

  /** Rejects a server that ignores write conditions: two publishers would replace each other's files. */
  async prepare(): Promise<void> {
    if (this.prepared) return;
    const bytes = new Uint8Array();
    await this.put(PROBE, bytes, null);
    for (const present of [null, this.unusedTag]) {
      if ((await this.put(PROBE, bytes, present)) === null) continue;
      throw new StoreError(
        `${this.where}: the server ignores the condition ${present === null ? 'that an object does not exist' : 'on the version of an object'}, so two publishers could overwrite each other's files: use a server with conditional writes`,
      );
    }
    this.prepared = true;
  }

  async read(path: string): Promise<Uint8Array | null> {
    return (await this.get(path))?.bytes ?? null;
  }

  async create(path: string, bytes: Uint8Array): Promise<Uint8Array | null> {
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      if (await this.written(path, bytes, null)) return null;
      const present = await this.read(path);
      if (present !== null) return present;
    }
    const why = `the object appeared and disappeared in each of ${ATTEMPTS} attempts`;
    throw this.failed('write', path, new Error(why));
  }

  async replace(path: string, bytes: Uint8Array, present: Uint8Array | null): Promise<boolean> {
    let found = this.known.get(path) ?? null;
    if (!sameBytes(found?.bytes ?? null, present)) found = await this.get(path);
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      if (!sameBytes(found?.bytes ?? null, present)) return false;
      if (await this.written(path, bytes, found?.tag ?? null)) return true;
      found = await this.get(path);
      // An attempt whose response was lost may have written the object.
      if (sameBytes(found?.bytes ?? null, bytes)) return true;
    }
    const why = `the object changed in each of ${ATTEMPTS} attempts`;
    throw this.failed('write', path, new Error(why));
  }

  /** An object is durable once its write has succeeded. */
  sync(): Promise<void> {
    return Promise.resolve();
  }

  async *list(folder: string): AsyncGenerator<string> {
    let token: string | undefined;
    do {
      const page = await this.call('list', folder, (signal) =>
        this.listPage(`${this.prefix}${folder}/`, token, signal),
      );
      for (const key of page.keys) yield key.slice(this.prefix.length);
      token = page.next;
    } while (token !== undefined);
  }

  /** Sends one request per object: not every server can delete several objects at once. */
  async remove(paths: readonly string[]): Promise<void> {
    const waiting = [...paths];
    const removeNext = async (): Promise<void> => {
      for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
        const key = this.prefix + path;
        await this.call('delete', path, (signal) => this.removeObject(key, signal));
      }
    };
    const results = await Promise.allSettled(Array.from({ length: AT_ONCE }, removeNext));
    // Reports a failure only after every deletion has ended, because the caller may then write a path again.
    for (const result of results) if (result.status === 'rejected') throw result.reason;
  }

  private async get(path: string): Promise<Found | null> {
    const known = this.known.get(path);
    for (let attempt = 1; ; attempt++) {
      const answer = await this.call('read', path, (signal) =>
        this.open(this.prefix + path, known?.tag, signal),
      );
      if (answer === 'unchanged' && known !== undefined) return known;
      if (answer === null || answer === 'unchanged') {
        this.known.delete(path);
        return null;
      }
      try {
        const bytes = await this.call('read', path, () => readAtMost(answer.body, MAX_BYTES));
        const found = { bytes, tag: answer.tag };
        if (!IMMUTABLE.test(path)) this.known.set(path, found);
        return found;
      } catch (error) {
        // The cloud's client does not repeat a request whose answer breaks off.
        if (attempt === ATTEMPTS) throw error;
      }
    }
  }

  /** Like `put`, but a failed write counts as done if the stored bytes are the same: only the response was lost. */
  private async written(path: string, bytes: Uint8Array, present: string | null): Promise<boolean> {
    try {
      return (await this.put(path, bytes, present)) !== null;
    } catch (error) {
      const stored = await this.read(path).catch(() => null);
      if (sameBytes(stored, bytes)) return true;
      throw error;
    }
  }

  /** Writes an object; null when the object does not have the version `present`. */
  private async put(
    path: string,
    bytes: Uint8Array,
    present: string | null,
  ): Promise<string | null> {
    // An empty tag would make the write unconditional.
    if (present === '') throw this.failed('write', path, new Error('its version is unknown'));
    const isImmutable = IMMUTABLE.test(path);
    const headers = {
      contentType: isImmutable ? 'application/octet-stream' : 'text/plain; charset=utf-8',
      cacheControl: isImmutable ? 'public, max-age=31536000, immutable' : 'no-cache',
    };
    const tag = await this.call('write', path, (signal) =>
      this.write(this.prefix + path, bytes, present, headers, signal),
    );
    if (tag !== null && tag !== '' && !isImmutable) this.known.set(path, { bytes, tag });
    return tag;
  }

  private async call<T>(
    what: string,
    path: string,
    send: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    try {
      const late = (): Error => new Error(`no answer within ${OPERATION_MS / 1_000} s`);
      return await withTimeout(send(timeoutSignal(OPERATION_MS)), OPERATION_MS, late);
    } catch (cause) {
      throw this.failed(what, path, cause);
    }
  }

  private failed(what: string, path: string, cause: unknown): StoreError {
    const { name, message } = cause as Error;
    return new StoreError(`${this.where}: cannot ${what} ${path}: ${name}: ${message}`, { cause });
  }
}
