import { openApiSchema, exampleOpenApi } from '../../openapi/self.js';
import { openApiDocument } from '../../openapi/document.js';
import { PAGE_POLICY, renderDocs } from '../../docs/page.js';
import { STYLE } from '../../docs/style.js';
import type { OpenApiDocument } from '../../openapi/types.js';
import { serveFixed } from '../http/fixed-document.js';
import { JSON_TYPE } from '../http/answer.js';
import type { Operation, PublicSpec } from '../operation.js';
import { publicDescription } from './description.js';
import { READER_TEXT } from './reader.js';

const ETAG = { ETag: 'Strong; send it back in `If-None-Match`.' };
const NOT_CHANGED = { description: 'Not modified since the sent ETag.' };

const served = (
  id: string,
  path: string,
  summary: string,
  response: PublicSpec['responses'][number],
): PublicSpec => ({
  id,
  method: 'get',
  path,
  tag: 'Service',
  summary,
  responses: { 200: { ...response, headers: ETAG }, 304: NOT_CHANGED },
  problems: [],
});

/** The OpenAPI document and the documentation page. */
export function documentation(specs: () => readonly PublicSpec[]): readonly Operation[] {
  let document: OpenApiDocument | undefined;
  const described = (): OpenApiDocument =>
    (document ??= openApiDocument(specs(), publicDescription()));
  return [
    {
      spec: {
        ...served('openApi', '/openapi.json', 'Get the OpenAPI document', {
          description: 'OpenAPI 3.1 of every operation of this server.',
          content: { 'application/json': openApiSchema },
          example: exampleOpenApi('Public verification API'),
        }),
        description: 'See [/docs](/docs) for the same content as a page.',
      },
      handler: serveFixed(JSON_TYPE, () => JSON.stringify(described())),
    },
    {
      spec: served('docs', '/docs', 'Show the API documentation', {
        description: 'A page without scripts.',
        content: { 'text/html': 'text' },
      }),
      handler: serveFixed(
        'text/html; charset=utf-8',
        () => renderDocs(described(), READER_TEXT),
        PAGE_POLICY,
      ),
    },
    {
      spec: served('docsStyle', '/docs/style.css', 'Get the style sheet of the documentation', {
        description: 'The style sheet.',
        content: { 'text/css': 'text' },
      }),
      handler: serveFixed('text/css; charset=utf-8', () => STYLE),
    },
  ];
}
