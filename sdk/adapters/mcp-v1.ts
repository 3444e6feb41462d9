import * as z from 'zod';
import { SdkError } from '../errors.js';

/** What a `Client` and a `Server` of v1 have in common. */
interface Handlers {
  /** Throws where there is a handler already. */
  assertCanSetRequestHandler(method: string): void;
  setRequestHandler(schema: unknown, handler: () => object): void;
  removeRequestHandler(method: string): void;
}

const PROBE = 'svc/probe';
const probeSchema = z.object({ method: z.literal(PROBE) });

/**
 * Throws `invalid_input` unless the object registers a handler as v1 does: under the method that a
 * schema names. In v2 the caller's signal is elsewhere, and one call may be several requests.
 */
export function requireMcpV1(object: object): void {
  if (registersBySchema(object as Handlers)) return;
  throw new SdkError(
    'invalid_input',
    'expected a server or client of @modelcontextprotocol/sdk, 1.12 or a later 1.x: no other MCP library is supported, nor are @modelcontextprotocol/server and @modelcontextprotocol/client 2.x',
  );
}

function registersBySchema(object: Handlers): boolean {
  const isFree = (): boolean => !throws(() => object.assertCanSetRequestHandler(PROBE));
  try {
    if (!isFree()) return false;
    object.setRequestHandler(probeSchema, () => ({}));
    const isTaken = !isFree();
    object.removeRequestHandler(PROBE);
    return isTaken && isFree();
  } catch {
    return false;
  }
}

function throws(run: () => void): boolean {
  try {
    run();
    return false;
  } catch {
    return true;
  }
}
