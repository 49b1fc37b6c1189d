<?xml version="1.0"?>
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
  <xsl:key name="by-region" match="order" use="@region"/>
  <xsl:template match="/orders">
    <html><body>
      <xsl:for-each select="order[generate-id() = generate-id(key('by-region', @region)[1])]">
        <xsl:sort select="@region"/>
        <h1><xsl:value-of select="@region"/></h1>
        <p><xsl:value-of select="sum(key('by-region', @region)/item/@price)"/></p>
        <xsl:for-each select="key('by-region', @region)">
          <xsl:sort select="item/name"/>
          <li><xsl:value-of select="concat(item/name, ': ', note)"/></li>
        </xsl:for-each>
      </xsl:for-each>
    </body></html>
  </xsl:template>
</xsl:stylesheet>
