import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { StatusConfig } from '#runtime/config';

/** The answer of a public API address to `/readyz`. */
export interface PublicApi {
  url: string;
  ready: boolean;
  /** As answered, or why there is no answer. */
  status: string;
  /** Age of its snapshot in milliseconds, and why it serves no newer one. */
  age_ms: number | null;
  refusal: string | null;
}

const TIMEOUT_MS = 5_000;

/** Checks every configured address; without one, that of an `npm start` on the same DATA_DIR. */
export async function checkPublicApi({ publicUrls, dataDir }: StatusConfig): Promise<PublicApi[]> {
  const urls = publicUrls.length > 0 ? publicUrls : await startedHere(dataDir);
  return Promise.all(urls.map(check));
}

async function startedHere(dataDir: string): Promise<string[]> {
  try {
    const ready = JSON.parse(await readFile(join(dataDir, 'ready.json'), 'utf8')) as {
      public_url?: unknown;
    };
    return typeof ready.public_url === 'string' ? [ready.public_url] : [];
  } catch {
    return [];
  }
}

async function check(url: string): Promise<PublicApi> {
  const down = (status: string): PublicApi => ({
    url,
    ready: false,
    status,
    age_ms: null,
    refusal: null,
  });
  try {
    const response = await fetch(`${url}/readyz`, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    const answer = (await response.json().catch(() => null)) as Record<string, unknown> | null;
    const { status, age_ms: age, refusal, title } = answer ?? {};
    if (response.ok && status === 'ready') {
      return {
        url,
        ready: true,
        status,
        age_ms: typeof age === 'number' ? age : null,
        refusal: typeof refusal === 'string' ? refusal : null,
      };
    }
    const words =
      [status, title].find((one) => typeof one === 'string') ?? 'not an answer of the public API';
    return down(`answers ${String(response.status)}, ${String(words)}`);
  } catch (error) {
    const { message, cause } = error as { message: string; cause?: { code?: unknown } };
    return down(typeof cause?.code === 'string' ? cause.code : message);
  }
}
