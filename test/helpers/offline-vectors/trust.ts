import { toBase64Url } from '#protocol/bytes';
import { aepKey, logVkey, ORIGIN } from '../worked-log.js';
import type { Outcome, VectorTrust } from './vector.js';

/** The keys of the worked log, which most vectors pin. */
export const trust = {
  aep_keys: [toBase64Url(aepKey.publicKey)],
  log_vkey: logVkey,
  log_origin: ORIGIN,
} satisfies VectorTrust;

export const notAuthentic = (fault: string): Outcome => ({
  authentic: false,
  included: false,
  status: 'unknown',
  fault,
});

export const notIncluded = (fault: string): Outcome => ({
  authentic: true,
  included: false,
  status: 'unknown',
  fault,
});

export const included = (size: number): Outcome => ({
  authentic: true,
  included: true,
  status: `unknown since checkpoint ${size}`,
});
