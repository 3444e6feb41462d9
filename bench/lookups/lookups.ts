import { randomBytes } from 'node:crypto';
import { idsOf } from '#protocol/ids';
import type { Samples } from '../figures/samples.js';

/** A lookup and what a facade has to answer to it. */
export interface Expected {
  path: string;
  status: number;
  verdict: string;
}

const VERIFY = '/api/public/verify';

/** The lookups of a log that is larger than the window, by the samples' ids. */
export function expectedLookups(samples: Samples, isFirstInWindow: boolean): Expected[] {
  const ids = idsOf(samples.first);
  const byPath = (kind: string, id: string, verdict: string): Expected => ({
    path: `${VERIFY}/${kind}/${id}`,
    status: verdict === 'NOT_FOUND' ? 404 : 200,
    verdict,
  });
  const generic = (id: string, verdict: string): Expected => ({
    path: `${VERIFY}?identifier=${id}`,
    status: 200,
    verdict,
  });
  return [
    byPath('proof', samples.first, 'VALID'),
    byPath('proof', samples.middle, 'VALID'),
    byPath('proof', samples.last, 'VALID'),
    byPath('proof', unknownId(), 'NOT_FOUND'),
    byPath('certificate', ids.certificate_id, 'VERIFIED'),
    byPath('passport', ids.passport_id, 'PASS'),
    byPath('trust', ids.trust_id, 'TRUST_ESTABLISHED'),
    generic(samples.first, isFirstInWindow ? 'VALID' : 'BACKEND_LOOKUP_REQUIRED'),
    generic(samples.last, 'VALID'),
  ];
}

/** An id of the right form, of this very moment, that nobody was given. */
function unknownId(): string {
  const random = randomBytes(10).toString('hex');
  return `${Date.now().toString(16).padStart(12, '0')}7${random.slice(0, 3)}8${random.slice(3, 18)}`;
}

/** Asks, and throws when the answer is another. */
export async function requireAnswer(url: string, expected: Expected): Promise<void> {
  const { path, status, verdict } = expected;
  const response = await fetch(url + path);
  const body = (await response.json()) as {
    result?: string;
    verification?: { verification_status: string };
  };
  const found = body.result ?? body.verification?.verification_status ?? '';
  if (response.status !== status || found !== verdict) {
    throw new Error(
      `${path} is answered ${String(response.status)} ${found}, not ${String(status)} ${verdict}`,
    );
  }
}
