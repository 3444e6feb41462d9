import { documentation } from '../docs/operations.js';
import { openApiDocument } from '../openapi/document.js';
import { type OpenApiDocument, revalidated } from '../openapi/types.js';
import { serveFixed } from './http/answer.js';
import { HEALTH_OPERATIONS } from './http/health.js';
import { LOG_OPERATIONS } from './log/operations.js';
import { EVIDENCE_OPERATIONS, LOOKUP_OPERATIONS, VIEW_OPERATIONS } from './lookup/operations.js';
import { publicDescription, READER_TEXT } from './openapi/description.js';
import type { Operation } from './operation.js';
import { PAGE_OPERATIONS } from './page.js';

let document: OpenApiDocument | undefined;
/** The OpenAPI document, generated on the first request. */
const described = (): OpenApiDocument =>
  (document ??= openApiDocument(
    OPERATIONS.map(({ spec }) => spec),
    publicDescription(),
  ));

const DOCUMENTATION = documentation('Public verification API', READER_TEXT).map(
  ({ spec, type, response, textOf, policy }): Operation => ({
    spec: {
      ...spec,
      method: 'get',
      tag: 'Service',
      responses: revalidated(response),
      problems: [],
    },
    handler: serveFixed(`${type}; charset=utf-8`, () => textOf(described()), policy),
  }),
);

export const OPERATIONS: readonly Operation[] = [
  ...LOOKUP_OPERATIONS,
  ...VIEW_OPERATIONS,
  ...EVIDENCE_OPERATIONS,
  ...LOG_OPERATIONS,
  ...PAGE_OPERATIONS,
  ...HEALTH_OPERATIONS,
  ...DOCUMENTATION,
];
