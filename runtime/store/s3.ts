import {
  DeleteObjectCommand,
  GetObjectCommand,
  type GetObjectCommandOutput,
  ListObjectsV2Command,
  NoSuchKey,
  PutObjectCommand,
  S3Client,
  S3ServiceException,
} from '@aws-sdk/client-s3';
import { equalBytes } from '#protocol/bytes';
import { withTimeout } from '../concurrency.js';
import { StoreError, type SnapshotStore } from './store.js';

const CONNECT_MS = 2_000;
const SILENT_MS = 5_000;
/** Limit of one operation with its retries; a watchdog stops a cycle without progress after 120 s. */
const OPERATION_MS = 30_000;
const ATTEMPTS = 3;
const AT_ONCE = 16;
/** Above the largest entry bundle: 256 entries of 64 KiB. */
const MAX_BYTES = 17 * 1024 * 1024;

const IMMUTABLE = /^(?:tile|map)\//;
/** Shows whether the server honours conditional writes. */
const PROBE = '.conditional-writes';

type Condition = { IfMatch: string } | { IfNoneMatch: '*' };

interface Found {
  bytes: Uint8Array;
  etag: string;
}

/**
 * A bucket of Amazon S3, or of another server with its API. Region, endpoint and credentials are
 * settings of the AWS SDK.
 *
 * A write is conditional, so its outcome after a lost response follows from what is in the bucket.
 */
export class S3Store implements SnapshotStore {
  readonly directory = null;
  private readonly client: S3Client;
  private readonly bucket: string;
  private readonly prefix: string;
  private prepared = false;
  /** The objects that are replaced, as last seen. */
  private readonly known = new Map<string, Found>();

  /** @param silentMs a connection that is silent for longer is given up */
  constructor(
    readonly where: string,
    silentMs = SILENT_MS,
  ) {
    const [, bucket = '', prefix = ''] = /^s3:\/\/([^/]+)\/?(.*?)\/?$/.exec(where) ?? [];
    this.bucket = bucket;
    this.prefix = prefix === '' ? '' : `${prefix}/`;
    this.client = new S3Client({
      maxAttempts: ATTEMPTS,
      // Every server has path style; host names of buckets need DNS and certificates.
      forcePathStyle: true,
      // Servers other than Amazon's reject the checksums that the SDK adds by default.
      requestChecksumCalculation: 'WHEN_REQUIRED',
      responseChecksumValidation: 'WHEN_REQUIRED',
      requestHandler: { connectionTimeout: CONNECT_MS, socketTimeout: silentMs },
    });
  }

  /** Refuses a server that ignores conditions: two publishers would replace each other's files. */
  async prepare(): Promise<void> {
    if (this.prepared) return;
    const bytes = new Uint8Array();
    await this.put(PROBE, bytes, { IfNoneMatch: '*' });
    for (const condition of [{ IfNoneMatch: '*' }, { IfMatch: '"none"' }] as const) {
      if (!(await this.put(PROBE, bytes, condition))) continue;
      const [header] = Object.keys(condition);
      throw new StoreError(
        `${this.where}: the server ignores ${String(header)} when it writes an object, so a second publisher could replace this one's files: use a server with conditional writes`,
      );
    }
    this.prepared = true;
  }

  async read(path: string): Promise<Uint8Array | null> {
    return (await this.get(path))?.bytes ?? null;
  }

  async create(path: string, bytes: Uint8Array): Promise<Uint8Array | null> {
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      if (await this.written(path, bytes, { IfNoneMatch: '*' })) return null;
      const present = await this.read(path);
      if (present !== null) return present;
    }
    throw this.failed('PUT', path, new Error('the object appears and disappears'));
  }

  async replace(path: string, bytes: Uint8Array, present: Uint8Array | null): Promise<boolean> {
    let found = this.known.get(path) ?? null;
    if (!sameBytes(found?.bytes ?? null, present)) found = await this.get(path);
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      if (!sameBytes(found?.bytes ?? null, present)) return false;
      const condition = found === null ? { IfNoneMatch: '*' as const } : { IfMatch: found.etag };
      if (await this.written(path, bytes, condition)) return true;
      found = await this.get(path);
      // An attempt whose response was lost may have written it.
      if (sameBytes(found?.bytes ?? null, bytes)) return true;
    }
    throw this.failed('PUT', path, new Error('the object changes all the time'));
  }

  /** An object is durable once its write has succeeded. */
  sync(): Promise<void> {
    return Promise.resolve();
  }

  async *list(folder: string): AsyncGenerator<string> {
    let token: string | undefined;
    do {
      const command = new ListObjectsV2Command({
        Bucket: this.bucket,
        Prefix: `${this.prefix}${folder}/`,
        ContinuationToken: token,
      });
      const page = await this.call('LIST', folder, (abortSignal) =>
        this.client.send(command, { abortSignal }),
      );
      for (const { Key = '' } of page.Contents ?? []) yield Key.slice(this.prefix.length);
      token = page.NextContinuationToken;
    } while (token !== undefined);
  }

  /** One request each: not every server can delete several objects at once. */
  async remove(paths: readonly string[]): Promise<void> {
    const waiting = [...paths];
    const removeNext = async (): Promise<void> => {
      for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
        const command = new DeleteObjectCommand(this.object(path));
        await this.call('DELETE', path, (abortSignal) =>
          this.client.send(command, { abortSignal }),
        );
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, removeNext));
  }

  private async get(path: string): Promise<Found | null> {
    const known = this.known.get(path);
    for (let attempt = 1; ; attempt++) {
      const answer = await this.call('GET', path, (signal) => this.open(path, known, signal));
      if (answer === 'unchanged' && known !== undefined) return known;
      if (answer === null || answer === 'unchanged') {
        this.known.delete(path);
        return null;
      }
      try {
        const reading = this.call('GET', path, () => bodyOf(answer));
        const found = { bytes: await reading, etag: answer.ETag ?? '' };
        if (!IMMUTABLE.test(path)) this.known.set(path, found);
        return found;
      } catch (error) {
        // The SDK does not repeat a request whose answer broke off.
        if (attempt === ATTEMPTS) throw error;
      }
    }
  }

  private async open(
    path: string,
    known: Found | undefined,
    abortSignal: AbortSignal,
  ): Promise<GetObjectCommandOutput | 'unchanged' | null> {
    const IfNoneMatch = known?.etag;
    const command = new GetObjectCommand({ ...this.object(path), IfNoneMatch });
    try {
      return await this.client.send(command, { abortSignal });
    } catch (error) {
      if (statusOf(error) === 304) return 'unchanged';
      if (error instanceof NoSuchKey) return null;
      throw error;
    }
  }

  /** As `put`; after a failure, whether the object is there shows whether only the response was lost. */
  private async written(path: string, bytes: Uint8Array, condition: Condition): Promise<boolean> {
    try {
      return await this.put(path, bytes, condition);
    } catch (error) {
      const present = await this.read(path).catch(() => null);
      if (sameBytes(present, bytes)) return true;
      throw error;
    }
  }

  /** Writes an object; false when the condition is not met. */
  private async put(path: string, Body: Uint8Array, condition: Condition): Promise<boolean> {
    const isImmutable = IMMUTABLE.test(path);
    const command = new PutObjectCommand({
      ...this.object(path),
      ...condition,
      Body,
      ContentType: isImmutable ? 'application/octet-stream' : 'text/plain; charset=utf-8',
      CacheControl: isImmutable ? 'public, max-age=31536000, immutable' : 'no-cache',
    });
    try {
      const { ETag } = await this.call('PUT', path, (abortSignal) =>
        this.client.send(command, { abortSignal }),
      );
      if (ETag !== undefined && !isImmutable) this.known.set(path, { bytes: Body, etag: ETag });
      return true;
    } catch (error) {
      // 409: another write of the object is under way. 404: If-Match without an object.
      const isRefused = [404, 409, 412].includes(statusOf(error) ?? 0);
      if (isRefused && causeOf(error)?.name !== 'NoSuchBucket') return false;
      throw error;
    }
  }

  private object(path: string): { Bucket: string; Key: string } {
    return { Bucket: this.bucket, Key: this.prefix + path };
  }

  private async call<T>(
    method: string,
    path: string,
    send: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    try {
      const late = (): Error => new Error(`no answer within ${OPERATION_MS / 1_000} s`);
      return await withTimeout(send(AbortSignal.timeout(OPERATION_MS)), OPERATION_MS, late);
    } catch (cause) {
      throw this.failed(method, path, cause);
    }
  }

  private failed(method: string, path: string, cause: unknown): StoreError {
    const { name, message } = cause as Error;
    return new StoreError(`${this.where}: ${method} ${path} failed: ${name}: ${message}`, {
      cause,
    });
  }
}

/** Counts the bytes: a response may be longer than it states. */
async function bodyOf({ Body }: GetObjectCommandOutput): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of Body as AsyncIterable<Uint8Array>) {
    length += chunk.length;
    if (length > MAX_BYTES) throw new Error('longer than any file of a snapshot');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, length);
}

const sameBytes = (a: Uint8Array | null, b: Uint8Array | null): boolean =>
  a === null || b === null ? a === b : equalBytes(a, b);

const causeOf = (error: unknown): S3ServiceException | null => {
  const cause = error instanceof StoreError ? error.cause : error;
  return cause instanceof S3ServiceException ? cause : null;
};

const statusOf = (error: unknown): number | undefined => causeOf(error)?.$metadata.httpStatusCode;
