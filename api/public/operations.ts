import { PAGE_POLICY, renderDocs } from '../docs/page.js';
import { STYLE } from '../docs/style.js';
import { openApiDocument } from '../openapi/document.js';
import { exampleOpenApi, openApiSchema } from '../openapi/self.js';
import type { OpenApiDocument } from '../openapi/types.js';
import { JSON_TYPE, serveFixed } from './http/answer.js';
import { HEALTH_OPERATIONS } from './http/health.js';
import { LOG_OPERATIONS } from './log/operations.js';
import { LOOKUP_OPERATIONS } from './lookup/operations.js';
import { publicDescription, READER_TEXT } from './openapi/description.js';
import { revalidated, type Operation, type PublicSpec } from './operation.js';
import { PAGE_OPERATIONS } from './page/operations.js';
import { VIEW_OPERATIONS } from './views/operations.js';

let document: OpenApiDocument | undefined;
/** Generated on the first request. */
const described = (): OpenApiDocument =>
  (document ??= openApiDocument(
    OPERATIONS.map(({ spec }) => spec),
    publicDescription(),
  ));

const service = (
  spec: Pick<PublicSpec, 'id' | 'path' | 'summary' | 'description'>,
  response: PublicSpec['responses'][number],
): PublicSpec => ({
  ...spec,
  method: 'get',
  tag: 'Service',
  responses: revalidated(response),
  problems: [],
});

const DOCUMENTATION: readonly Operation[] = [
  {
    spec: service(
      {
        id: 'openApi',
        path: '/openapi.json',
        summary: 'Get the OpenAPI document',
        description: 'See [/docs](/docs) for the same content as a page.',
      },
      {
        description: 'OpenAPI 3.1 of every operation of this server.',
        content: { 'application/json': openApiSchema },
        example: exampleOpenApi('Public verification API'),
      },
    ),
    handler: serveFixed(JSON_TYPE, () => JSON.stringify(described())),
  },
  {
    spec: service(
      { id: 'docs', path: '/docs', summary: 'Show the API documentation' },
      { description: 'A page without scripts.', content: { 'text/html': 'text' } },
    ),
    handler: serveFixed(
      'text/html; charset=utf-8',
      () => renderDocs(described(), READER_TEXT),
      PAGE_POLICY,
    ),
  },
  {
    spec: service(
      {
        id: 'docsStyle',
        path: '/docs/style.css',
        summary: 'Get the style sheet of the documentation',
      },
      { description: 'The style sheet.', content: { 'text/css': 'text' } },
    ),
    handler: serveFixed('text/css; charset=utf-8', () => STYLE),
  },
];

/** Every operation of the public API, for the router and the OpenAPI document. */
export const OPERATIONS: readonly Operation[] = [
  ...LOOKUP_OPERATIONS,
  ...VIEW_OPERATIONS,
  ...LOG_OPERATIONS,
  ...PAGE_OPERATIONS,
  ...HEALTH_OPERATIONS,
  ...DOCUMENTATION,
];
