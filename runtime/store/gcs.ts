import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import * as z from 'zod';
import { withTimeout } from '../concurrency.js';
import {
  ATTEMPTS,
  BucketStore,
  SILENT_MS,
  type ObjectHeaders,
  type OpenedObject,
} from './bucket.js';

const API = 'https://storage.googleapis.com';
const SCOPE = 'https://www.googleapis.com/auth/devstorage.read_write';
/** Pause before the second attempt, doubled before the third: an object may be written once per second. */
const PAUSE_MS = 500;
/** Lowest speed of an upload: a slower upload is aborted. */
const LEAST_BYTES_PER_MS = 100;

const writtenSchema = z.object({ generation: z.string() });
const pageSchema = z.object({
  items: z.array(z.object({ name: z.string() })).default([]),
  nextPageToken: z.string().optional(),
});

export type Authorize = () => Promise<Headers>;

export interface GcsServer {
  api: string;
  authorize: Authorize;
}

/**
 * A bucket of Google Cloud Storage, through the JSON API: the S3-compatible API ignores the conditions of writes. The
 * tag of an object is its generation.
 */
export class GcsStore extends BucketStore {
  protected readonly unusedTag = '1';
  private readonly objects: string;
  private readonly uploads: string;

  constructor(
    where: string,
    private readonly server: GcsServer = { api: API, authorize: defaultCredentials() },
    private readonly silentMs = SILENT_MS,
  ) {
    super(where);
    this.objects = `${server.api}/storage/v1/b/${this.bucket}/o`;
    this.uploads = `${server.api}/upload/storage/v1/b/${this.bucket}/o`;
  }

  /** Never sends a conditional request: the objects that change are small, so reading them again is cheap. */
  protected async open(
    key: string,
    _known: string | undefined,
    signal: AbortSignal,
  ): Promise<OpenedObject | null> {
    const response = await this.send('GET', this.urlOf(key, { alt: 'media' }), [404], signal);
    if (response.status === 404) {
      // A missing bucket gives the same status as a missing object, but only an existing bucket can be listed.
      const url = this.objects + queryOf({ maxResults: '1', fields: 'nextPageToken' });
      await this.send('GET', url, [], signal);
      return null;
    }
    const tag = response.headers.get('x-goog-generation') ?? '';
    return { body: unlessSilent(response.body, this.silentMs), tag };
  }

  protected async write(
    key: string,
    bytes: Uint8Array,
    present: string | null,
    { contentType, cacheControl }: ObjectHeaders,
    signal: AbortSignal,
  ): Promise<string | null> {
    const boundary = randomUUID();
    const part = (type: string): string => `--${boundary}\r\nContent-Type: ${type}\r\n\r\n`;
    const metadata = JSON.stringify({ name: key, contentType, cacheControl });
    const body = Buffer.concat([
      Buffer.from(`${part('application/json')}${metadata}\r\n${part(contentType)}`),
      bytes,
      Buffer.from(`\r\n--${boundary}--\r\n`),
    ]);
    const query = { uploadType: 'multipart', name: key, ifGenerationMatch: present ?? '0' };
    const url = this.uploads + queryOf(query);
    const type = `multipart/related; boundary=${boundary}`;
    const response = await this.send('POST', url, [412], signal, { body, type });
    if (response.status === 412) return null;
    return writtenSchema.parse(await response.json()).generation;
  }

  protected async listPage(prefix: string, token: string | undefined, signal: AbortSignal) {
    const query = {
      prefix,
      fields: 'items/name,nextPageToken',
      ...(token && { pageToken: token }),
    };
    const response = await this.send('GET', this.objects + queryOf(query), [], signal);
    const { items, nextPageToken } = pageSchema.parse(await response.json());
    return { keys: items.map(({ name }) => name), next: nextPageToken };
  }

  protected async removeObject(key: string, signal: AbortSignal): Promise<void> {
    await this.send('DELETE', this.urlOf(key, {}), [404], signal);
  }

  private urlOf(key: string, query: Record<string, string>): string {
    return `${this.objects}/${encodeURIComponent(key)}${queryOf(query)}`;
  }

  /** Sends a request, up to `ATTEMPTS` times, until it succeeds or has one of the expected statuses. */
  private async send(
    method: string,
    url: string,
    expected: readonly number[],
    signal: AbortSignal,
    sent?: { body: Buffer; type: string },
  ): Promise<Response> {
    for (let attempt = 1; ; attempt++) {
      const sending = this.attempt(method, url, signal, sent);
      const result = await sending.catch((error: unknown) => error as Error);
      const isAnswer = result instanceof Response;
      if (isAnswer && (result.ok || expected.includes(result.status))) return result;
      const isFinal = isAnswer && result.status < 500 && ![408, 429].includes(result.status);
      const failure = isAnswer
        ? new GcsError(`${result.status} ${(await result.text()).slice(0, 200)}`)
        : result;
      if (isFinal || attempt === ATTEMPTS || signal.aborted) throw failure;
      await sleep(PAUSE_MS * 2 ** (attempt - 1), undefined, { signal });
    }
  }

  private async attempt(
    method: string,
    url: string,
    signal: AbortSignal,
    sent?: { body: Buffer; type: string },
  ): Promise<Response> {
    const headers = await this.server.authorize();
    if (sent !== undefined) headers.set('Content-Type', sent.type);
    const silence = new AbortController();
    const uploadMs = (sent?.body.length ?? 0) / LEAST_BYTES_PER_MS;
    const timer = setTimeout(() => silence.abort(new Error('no answer')), this.silentMs + uploadMs);
    try {
      return await fetch(url, {
        method,
        headers,
        body: sent?.body ?? null,
        // A redirect would send the token to another server.
        redirect: 'error',
        signal: AbortSignal.any([signal, silence.signal]),
      });
    } catch (error) {
      // The message of a fetch error does not name the cause.
      throw error instanceof TypeError && error.cause instanceof Error ? error.cause : error;
    } finally {
      clearTimeout(timer);
    }
  }
}

/** The chunks of a body. Fails if no chunk arrives for `silentMs`, because `fetch` has no such limit. */
async function* unlessSilent(body: Response['body'], silentMs: number): AsyncGenerator<Uint8Array> {
  if (body === null) return;
  const reader = body.getReader() as ReadableStreamDefaultReader<Uint8Array>;
  const late = (): Error => new Error('the response stopped');
  try {
    for (;;) {
      const { done, value } = await withTimeout(reader.read(), silentMs, late);
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

const queryOf = (query: Record<string, string>): string =>
  `?${new URLSearchParams(query).toString()}`;

class GcsError extends Error {
  override readonly name = 'GcsError';
}

/** Google's Application Default Credentials, from a file, the machine or the workload. */
function defaultCredentials(): Authorize {
  const loading = import('google-auth-library').then(
    ({ GoogleAuth }) => new GoogleAuth({ scopes: [SCOPE] }),
  );
  return async () => new Headers(await (await loading).getRequestHeaders());
}
