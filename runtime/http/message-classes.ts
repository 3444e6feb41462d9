import { IncomingMessage, ServerResponse, type ServerOptions } from 'node:http';

/** Prototypes of a framework's requests and responses; for Express, those of the application. */
export interface MessagePrototypes {
  request: IncomingMessage;
  response: ServerResponse;
}

/** The first Node whose V8 keeps its optimizations when a prototype changes. */
const FIRST_WITHOUT_NEED = 24;

/** Whether this Node benefits from `messageClasses`. */
export const makesMessages = Number.parseInt(process.versions.node) < FIRST_WITHOUT_NEED;

/**
 * Classes for `createServer` whose requests and responses have the given prototypes from the start.
 * Express otherwise replaces the prototype of each instance, on which V8 discards its hidden class:
 * measured at two thirds of the cost of a request.
 */
export function messageClasses({
  request,
  response,
}: MessagePrototypes): Pick<ServerOptions, 'IncomingMessage' | 'ServerResponse'> {
  if (!makesMessages) return {};
  return {
    IncomingMessage: inheriting(IncomingMessage, request) as typeof IncomingMessage,
    ServerResponse: inheriting(ServerResponse, response) as typeof ServerResponse,
  };
}

/** In these Node versions both classes are callable functions, unlike their declarations. */
type Initializer = (this: object, ...options: unknown[]) => void;

function inheriting(base: typeof IncomingMessage | typeof ServerResponse, prototype: object) {
  const initialize = base as unknown as Initializer;
  function Message(this: object, first: unknown, second: unknown): void {
    initialize.call(this, first, second);
  }
  Message.prototype = prototype;
  return Message as unknown;
}
