import { loadSigningKey } from '#runtime/crypto/node';
import { engineHeaders } from '../service/headers.js';
import type { Outside } from './receipt-evidence.js';
import type { BenchStack } from '../service/stack.js';

/** What somebody knows who was given an API key and two public keys. */
export function outsideOf({ engineUrl, publicUrl, registry }: BenchStack): Outside {
  return {
    engineUrl,
    publicUrl,
    headers: engineHeaders(registry.apiKey, registry.tenantId),
    trust: {
      aepKey: loadSigningKey(registry.keyFiles.aep).publicKey,
      logVkey: registry.vkeys.log,
      logOrigin: registry.origin,
    },
  };
}
