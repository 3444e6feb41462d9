import { IncomingMessage, ServerResponse, type ServerOptions } from 'node:http';

/** What requests and responses of a framework inherit from; of Express, its application. */
export interface MessagePrototypes {
  request: IncomingMessage;
  response: ServerResponse;
}

/** The first Node whose V8 takes no offence at a prototype that is changed. */
const FIRST_WITHOUT_NEED = 24;

/** Whether this Node gains by it. */
export const makesMessages = Number.parseInt(process.versions.node) < FIRST_WITHOUT_NEED;

/**
 * Classes for `createServer`, whose requests and responses are made with these prototypes. Express
 * otherwise gives them theirs one by one after they are made, and V8 answers a changed prototype by
 * forgetting what it learned of their shape: measured, two thirds of what a request cost.
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

/** What both classes are in these Nodes, whatever the declarations say: functions that can be called. */
type Initializer = (this: object, ...options: unknown[]) => void;

function inheriting(base: typeof IncomingMessage | typeof ServerResponse, prototype: object) {
  const initialize = base as unknown as Initializer;
  function Message(this: object, first: unknown, second: unknown): void {
    initialize.call(this, first, second);
  }
  Message.prototype = prototype;
  return Message as unknown;
}
