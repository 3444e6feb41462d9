import { formVectors } from './form.js';
import { inclusionVectors } from './inclusion.js';
import { keyVectors } from './keys.js';
import { partVectors } from './parts.js';
import { pinVectors } from './pins.js';
import { signatureVectors } from './signatures.js';
import { textVectors } from './text.js';
import { tlogProofVectors } from './tlog-proofs.js';
import { validVectors } from './valid.js';
import type { OfflineVector } from './vector.js';

/** The vectors of offline verification, by file name in `protocol/vectors/` without its extension. */
export const offlineVectors: Record<string, OfflineVector[]> = {
  'valid/offline': validVectors,
  'invalid/text': textVectors,
  'invalid/form': formVectors,
  'invalid/parts': partVectors,
  'invalid/signature': signatureVectors,
  'invalid/key': keyVectors,
  'invalid/pin': pinVectors,
  'invalid/inclusion': inclusionVectors,
  'invalid/tlog-proof': tlogProofVectors,
};
